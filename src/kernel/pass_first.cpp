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

// Sums of 16 bits: the rows with the smallest in so many super-blocks give the first limit. For more hits, most of their
// rows would be scored in any case.
constexpr std::size_t supers_of_sums = 4, largest_k_of_sums = 512;

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
    if (!sums8() && k_ <= largest_k_of_sums) {
        std::vector<std::size_t> nearest;
        for (; n && nearest.size() < supers_of_sums && !heap.empty(); --n) {
            nearest.push_back(heap.front());
            std::pop_heap(heap.begin(), heap.end(), farther);
            heap.pop_back();
        }
        smallest_sums_first(supers, nearest);
    }
    if (sums8() && heap.size() > 1) scan_nearest_blocks(supers, heap, farther);
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

// The least limit that k of the wanted rows of a super-block are within, or else the largest.
std::uint16_t Pass::limit_of_smallest(const Super &super, std::uint64_t live, const std::uint16_t *sums) const {
    unsigned limit = 65535;
    for (unsigned bit = 32768; bit; bit /= 2) {
        const auto lower = static_cast<std::uint16_t>(limit - bit);
        std::size_t n = 0;
        for (std::uint64_t left = live; left && n < k_; left &= left - 1) {
            const auto b = static_cast<std::size_t>(std::countr_zero(left));
            const std::uint64_t rows = scanner_->within16(sums + b * lane_count, lower) & wanted_rows(super, b);
            n += static_cast<std::size_t>(std::popcount(rows));
        }
        if (n >= k_) limit -= bit;
    }
    return static_cast<std::uint16_t>(limit);
}

// Scoring a row takes as long as scanning hundreds: score those with the smallest sums, then those whose sums are within
// the limit that they give.
void Pass::smallest_sums_first(const std::vector<Super> &supers, const std::vector<std::size_t> &nearest) {
    struct Sum {
        std::uint32_t value, row;  // numbered among the rows of `nearest`
        bool operator<(const Sum &other) const { return value < other.value; }
    };
    std::vector<Sum> smallest;
    std::vector<std::uint64_t> live, scored(nearest.size() * lane_count, 0);
    std::vector<std::uint16_t, LineAllocator<std::uint16_t>> sums(nearest.size() * super_rows);
    std::uint16_t limit = 0;
    for (std::size_t i = 0; i < nearest.size(); ++i) {
        const Super &super = supers[nearest[i]];
        live.push_back(begin_visit(supers, nearest[i]));
        bounds_[nearest[i]] = infinity;
        n_scanned_ += static_cast<std::size_t>(std::popcount(live[i]));
        const Tables tables = query_.tables(reach_);
        scanner_->sums16(super.blocks(n_bytes_), live[i], total_bytes_, tables, &sums[i * super_rows]);
        if (i == 0) limit = std::min(tables.limit, limit_of_smallest(super, live[i], sums.data()));
        for (std::uint64_t left = live[i]; left; left &= left - 1) {
            const auto b = static_cast<std::size_t>(std::countr_zero(left));
            const std::size_t first = i * super_rows + b * lane_count;
            std::uint64_t rows = scanner_->within16(&sums[first], limit);
            if (rows) rows &= wanted_rows(super, b);
            for (; rows; rows &= rows - 1) {
                const auto lane = static_cast<std::size_t>(std::countr_zero(rows));
                smallest.push_back({sums[first + place_of_sum(lane)], static_cast<std::uint32_t>(first + lane)});
            }
        }
    }
    n_without_gain_ = 0;  // without a limit, bounds spare nothing
    if (smallest.size() > k_) {
        std::nth_element(smallest.begin(), smallest.begin() + static_cast<std::ptrdiff_t>(k_ - 1), smallest.end());
        smallest.resize(k_);
    }
    for (const Sum &sum : smallest) {
        const std::size_t block = sum.row / lane_count, lane = sum.row % lane_count;
        scored[block] |= std::uint64_t{1} << lane;
        queue_row(supers[nearest[block / lane_count]], block % lane_count, lane);
    }
    score_rows();
    for (std::size_t i = 0; i < nearest.size(); ++i) {
        if (!live[i]) continue;
        const Super &super = supers[nearest[i]];
        uniform_ = scanner_->uniform(super.bounds(n_bytes_), query_.free_bits(), n_bytes_);
        limit = query_.row_limit(reach_);
        for (std::uint64_t left = without_ties(super, live[i]); left; left &= left - 1) {
            const auto b = static_cast<std::size_t>(std::countr_zero(left));
            const std::size_t block = i * lane_count + b;
            const std::uint64_t rows = scanner_->within16(&sums[block * lane_count], limit) & ~scored[block];
            if (!rows) continue;
            take_rows(super, b, rows);
            limit = query_.row_limit(reach_);
        }
    }
}

}  // namespace bitrank
