// The first super-blocks of a pass, which bring its limit near the final one.
#include <algorithm>
#include <bit>
#include <limits>

#include "pass.hpp"

namespace bitrank {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// Blocks scanned before any super-block, the nearest ones of the nearest super-blocks: they give the first limit.
// The bits of the first bytes decide: most rows of a block share no others.
constexpr std::size_t seed_supers = 8, seed_bytes = 8, seed_blocks = 32;

// Rows are prefetched so many before their turn.
constexpr std::size_t rows_ahead = 2;

// For more hits, most rows of the first super-blocks would be scored in any case.
constexpr std::size_t largest_k_of_sums = 512;

}  // namespace

void Pass::best_first(const std::vector<Super> &supers, std::size_t n) {
    // Break ties by memory order, in which the ids of equal codes ascend.
    const auto farther = [&](std::size_t a, std::size_t b) {
        return bounds_[a] != bounds_[b] ? bounds_[a] > bounds_[b] : a > b;
    };
    std::vector<std::size_t> heap;
    for (std::size_t i = 0; i < supers.size(); ++i)
        if (within_reach(i)) heap.push_back(i);
    std::make_heap(heap.begin(), heap.end(), farther);
    if (!short_code() && k_ <= largest_k_of_sums) {
        std::vector<std::size_t> nearest;
        for (; n && !heap.empty(); --n) {
            nearest.push_back(heap.front());
            std::pop_heap(heap.begin(), heap.end(), farther);
            heap.pop_back();
        }
        return smallest_sums_first(supers, nearest);
    }
    if (short_code() && heap.size() > 1) scan_nearest_blocks(supers, heap, farther);
    for (; n && !heap.empty(); --n) {
        const std::size_t i = heap.front();
        if (!within_reach(i)) return;
        std::pop_heap(heap.begin(), heap.end(), farther);
        heap.pop_back();
        if (!heap.empty()) prefetch_bounds(supers[heap.front()]);
        visit(supers[i], begin_visit(supers, i));
        bounds_[i] = infinity;
    }
}

template <typename Farther>
void Pass::scan_nearest_blocks(const std::vector<Super> &supers, std::vector<std::size_t> heap, Farther farther) {
    struct Block {
        float bound;
        std::size_t super, number;
    };
    std::vector<Block> blocks;
    const std::size_t n_seed_bytes = std::min(n_bytes_, seed_bytes);
    for (std::size_t n = 0; n < seed_supers && !heap.empty(); ++n) {
        const std::size_t i = heap.front();
        std::pop_heap(heap.begin(), heap.end(), farther);
        heap.pop_back();
        const std::uint8_t *bounds = supers[i].bounds(n_bytes_);
        for (std::size_t b = 0; b < supers[i].n_blocks(); ++b)
            blocks.push_back({query_.bound(bounds + b, bounds + lane_count + b, 2 * lane_count, n_seed_bytes), i, b});
    }
    const std::size_t n_seeds = std::min(blocks.size(), seed_blocks);
    std::partial_sort(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(n_seeds), blocks.end(),
                      [](const Block &a, const Block &b) { return a.bound < b.bound; });
    blocks.resize(n_seeds);
    for (const Block &block : blocks) {
        if (block.bound > reach_) break;
        const Super &super = supers[block.super];
        const std::uint8_t *agree = super.bounds(n_bytes_) + lane_count + block.number;
        const std::uint64_t bit = std::uint64_t{1} << block.number;
        scanned_[block.super] |= bit;
        uniform_ = is_uniform(agree, 2 * lane_count, query_.free_bits(), n_bytes_) ? bit : 0;
        if (without_ties(super, bit)) scan(super, bit, bit);
    }
}

// Scoring a row takes as long as scanning hundreds: score those with the smallest sums, then those whose sums are within
// the limit that they give.
void Pass::smallest_sums_first(const std::vector<Super> &supers, const std::vector<std::size_t> &nearest) {
    std::vector<std::uint64_t> live, smallest;  // live blocks per super-block; sums, each with the place of its row
    std::vector<std::uint16_t, LineAllocator<std::uint16_t>> sums(nearest.size() * super_rows);
    const auto keep_smallest = [&] {
        if (smallest.size() <= k_) return;
        std::nth_element(smallest.begin(), smallest.begin() + static_cast<std::ptrdiff_t>(k_ - 1), smallest.end());
        smallest.resize(k_);
    };
    smallest.reserve(2 * k_ + lane_count);
    std::uint64_t largest = ~std::uint64_t{0};  // of the smallest, once there are enough
    for (std::size_t i = 0; i < nearest.size(); ++i) {
        const Super &super = supers[nearest[i]];
        live.push_back(begin_visit(supers, nearest[i]));
        n_scanned_ += static_cast<std::size_t>(std::popcount(live[i]));
        std::uint16_t *of_super = &sums[i * super_rows];
        const Tables tables = query_.tables(reach_);
        scanner_->sums16(super.blocks(n_bytes_), live[i], total_bytes_, tables, of_super);
        for (std::uint64_t left = live[i]; left; left &= left - 1) {
            const auto b = static_cast<std::size_t>(std::countr_zero(left));
            const std::uint16_t *of_block = of_super + b * lane_count;
            if (!largest) break;
            const auto most = static_cast<std::uint16_t>(std::min<std::uint64_t>(largest - 1, tables.limit));
            for (std::uint64_t rows = scanner_->within16(of_block, most) & wanted_rows(super, b); rows; rows &= rows - 1) {
                const auto lane = static_cast<std::size_t>(std::countr_zero(rows));
                smallest.push_back(std::uint64_t{of_block[place_of_sum(lane)]} << 32 | (i * lane_count + b) * lane_count | lane);
            }
            if (smallest.size() >= 2 * k_) {
                keep_smallest();
                largest = smallest[k_ - 1] >> 32;
            }
        }
        bounds_[nearest[i]] = infinity;
    }
    keep_smallest();
    std::vector<std::uint64_t> scored(nearest.size() * lane_count, 0);
    for (std::size_t i = 0; i < smallest.size(); ++i) {
        const auto super_of = [&](std::size_t block) -> const Super & { return supers[nearest[block / lane_count]]; };
        const auto place_of = [&](std::size_t j) { return static_cast<std::size_t>(smallest[j] & 0xffffffff); };
        if (i + rows_ahead < smallest.size()) {
            const std::size_t next = place_of(i + rows_ahead), block = next / lane_count;
            const std::uint8_t *row = super_of(block).block(block % lane_count, n_bytes_) + next % lane_count;
            for (std::size_t byte = 0; byte < n_bytes_; ++byte) __builtin_prefetch(row + byte * lane_count);
        }
        const std::size_t place = place_of(i), block = place / lane_count;
        scored[block] |= std::uint64_t{1} << place % lane_count;
        queue_row(super_of(block), block % lane_count, place % lane_count);
    }
    score_rows();
    for (std::size_t i = 0; i < nearest.size(); ++i) {
        const Super &super = supers[nearest[i]];
        uniform_ = live[i] ? scanner_->uniform(super.bounds(n_bytes_), query_.free_bits(), n_bytes_) : 0;
        for (std::uint64_t left = without_ties(super, live[i]); left; left &= left - 1) {
            const auto b = static_cast<std::size_t>(std::countr_zero(left));
            const std::uint64_t rows = scanner_->within16(&sums[(i * lane_count + b) * lane_count], query_.row_limit(reach_));
            if (rows & ~scored[i * lane_count + b]) take_rows(super, b, rows & ~scored[i * lane_count + b]);
        }
    }
}

}  // namespace bitrank
