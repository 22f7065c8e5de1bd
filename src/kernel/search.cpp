#include "search.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>

#include "parallel.hpp"
#include "query.hpp"

namespace bitrank {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// Queries that share a super-block while it is in the cache.
constexpr std::size_t queries_together = 16;

// Super-blocks visited best first, to bring the limit near its final value; the rest follow in memory order.
constexpr std::size_t supers_best_first = 32;

// Blocks scanned before any super-block, the nearest ones of the nearest super-blocks: they give the first limit.
constexpr std::size_t seed_supers = 8, seed_blocks = 32;

// Start one thread per this many super-blocks; fewer do not pay for a thread.
constexpr std::size_t supers_worth_a_thread = 64;

struct Super {
    const Segment *segment;
    std::size_t number;        // within the segment
    std::int64_t segment_row;  // first row of the segment, numbered across all segments

    std::size_t n_blocks() const { return std::min(lane_count, segment->n_blocks() - number * lane_count); }
};

// The n lowest set bits of a word.
std::uint64_t lowest(std::uint64_t word, std::size_t n = 1) {
    std::uint64_t rest = word;
    while (n-- && rest) rest &= rest - 1;
    return word & ~rest;
}

// Whether the rows of a block or super-block differ only in the free bits.
bool is_uniform(const std::uint8_t *agree, std::size_t stride, const std::uint8_t *free, std::size_t n_bytes) {
    for (std::size_t byte = 0; byte < n_bytes; ++byte)
        if ((agree[byte * stride] | free[byte]) != 255) return false;
    return true;
}

// The state of one query while it visits super-blocks.
class Pass {
public:
    Pass(const Search &task, std::size_t q, const std::vector<Super> &supers)
        : query_(task.queries + q * task.order.n_bytes(),
                 task.weights + (task.weights_per_query ? q * task.order.n_bits : 0), task.order),
          n_bytes_(task.order.n_bytes()),
          scanner_(*task.scanner),
          top_(task.k, task.radius),
          reach_(query_.reach(top_.limit())),
          scanned_(supers.size(), 0) {
        bounds_.reserve(supers.size());
        for (const Super &super : supers) {
            const std::uint8_t *shared = super.segment->supers + super.number * 2 * n_bytes_;
            bounds_.push_back(query_.bound(shared, shared + 1, 2));
        }
    }

    bool within_reach(std::size_t i) const { return bounds_[i] <= reach_; }

    void best_first(const std::vector<Super> &supers) {
        // Break ties by memory order, in which the ids of equal codes ascend.
        const auto farther = [&](std::size_t a, std::size_t b) {
            return bounds_[a] != bounds_[b] ? bounds_[a] > bounds_[b] : a > b;
        };
        std::vector<std::size_t> heap;
        for (std::size_t i = 0; i < supers.size(); ++i)
            if (within_reach(i)) heap.push_back(i);
        std::make_heap(heap.begin(), heap.end(), farther);
        scan_nearest_blocks(supers, heap, farther);
        for (std::size_t n = supers_best_first; n && !heap.empty(); --n) {
            const std::size_t i = heap.front();
            if (!within_reach(i)) return;
            std::pop_heap(heap.begin(), heap.end(), farther);
            heap.pop_back();
            if (!heap.empty()) prefetch_bounds(supers[heap.front()]);
            visit(supers[i], scanned_[i]);
            bounds_[i] = infinity;
        }
    }

    template <typename Farther>
    void scan_nearest_blocks(const std::vector<Super> &supers, std::vector<std::size_t> heap, Farther farther) {
        struct Block {
            float bound;
            std::size_t super, number;
        };
        std::vector<Block> blocks;
        for (std::size_t n = 0; n < seed_supers && !heap.empty(); ++n) {
            const std::size_t i = heap.front();
            std::pop_heap(heap.begin(), heap.end(), farther);
            heap.pop_back();
            const std::uint8_t *bounds = bounds_of(supers[i]);
            for (std::size_t b = 0; b < supers[i].n_blocks(); ++b)
                blocks.push_back({query_.bound(bounds + b, bounds + lane_count + b, 2 * lane_count), i, b});
        }
        const std::size_t n_seeds = std::min(blocks.size(), seed_blocks);
        std::partial_sort(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(n_seeds), blocks.end(),
                          [](const Block &a, const Block &b) { return a.bound < b.bound; });
        blocks.resize(n_seeds);
        for (const Block &block : blocks) {
            if (block.bound > reach_) break;
            const Super &super = supers[block.super];
            const std::uint8_t *agree = bounds_of(super) + lane_count + block.number;
            const std::uint64_t bit = std::uint64_t{1} << block.number;
            scanned_[block.super] |= bit;
            if (!is_uniform(agree, 2 * lane_count, query_.free_bits(), n_bytes_) ||
                least_would_enter(super, block.number))
                scan(super, bit, bit);
        }
    }

    // Visit super-block i unless it was visited or is beyond reach.
    void visit_if_needed(const std::vector<Super> &supers, std::size_t i) {
        if (!(bounds_[i] < infinity && within_reach(i))) return;
        if (i + 1 < supers.size() && within_reach(i + 1)) prefetch_bounds(supers[i + 1]);
        visit(supers[i], scanned_[i]);
    }

    void share_limit(std::atomic<float> &shared) {
        float known = shared.load(std::memory_order_relaxed);
        const float limit = top_.limit();
        while (limit < known && !shared.compare_exchange_weak(known, limit, std::memory_order_relaxed)) {}
        if (known < limit) {
            top_.lower_radius(known);
            reach_ = query_.reach(known);
        }
    }

    void forget_hits(std::size_t k, float radius) { top_ = TopK(k, radius); }
    const TopK &top() const { return top_; }

private:
    void visit(const Super &super, std::uint64_t scanned_before) {
        const Segment &segment = *super.segment;
        const std::size_t first = super.number * lane_count;
        const std::size_t n_blocks = super.n_blocks();
        // Equal codes are common in real data, and so are equal distances when few bits have weight. If all rows are at
        // one distance, the smallest id decides whether any can enter; the bounds hold the code, so no row is read.
        const std::uint8_t *shared = segment.supers + super.number * 2 * n_bytes_;
        const std::int64_t *least_ids = segment.least_ids + first;
        if (is_uniform(shared + 1, 2, query_.free_bits(), n_bytes_) &&
            !top_.would_enter({query_.distance(shared, 2), *std::min_element(least_ids, least_ids + n_blocks), 0}))
            return;
        const std::uint8_t *bounds = bounds_of(super);
        std::uint64_t live = blocks_within_reach(bounds) & ~scanned_before;
        if (n_blocks < lane_count) live &= (std::uint64_t{1} << n_blocks) - 1;
        if (segment.wanted)
            for (std::uint64_t left = live; left; left &= left - 1)
                if (!segment.wanted[first + std::countr_zero(left)]) live &= ~lowest(left);
        if (!live) return;
        const std::uint64_t uniform = scanner_.uniform(bounds, query_.free_bits(), n_bytes_);
        // Scan a few blocks at a time, so that the next ones profit from the lower limit.
        while (live) {
            const float before = reach_;
            const std::uint64_t now = lowest(live, 8);
            std::uint64_t scanned = now;
            for (std::uint64_t left = now & uniform; left; left &= left - 1) {
                const std::size_t b = std::countr_zero(left);
                if (!least_would_enter(super, b)) scanned &= ~lowest(left);
            }
            scan(super, scanned, live);
            live &= ~now;
            if (reach_ < before && live) live &= blocks_within_reach(bounds);
        }
    }

    // Whether the row with the smallest id would enter, for a block whose rows are all at one distance.
    bool least_would_enter(const Super &super, std::size_t b) {
        const std::int64_t least_id = super.segment->least_ids[super.number * lane_count + b];
        return top_.would_enter({query_.distance(bounds_of(super) + b, 2 * lane_count), least_id, 0});
    }

    const std::uint8_t *bounds_of(const Super &super) const {
        return super.segment->bounds + super.number * n_bytes_ * 2 * lane_count;
    }

    void prefetch_bounds(const Super &super) const {
        const std::uint8_t *bounds = bounds_of(super);
        for (std::size_t line = 0; line < 2 * n_bytes_; ++line) __builtin_prefetch(bounds + line * lane_count);
    }

    std::uint64_t blocks_within_reach(const std::uint8_t *bounds) {
        return (query_.short_code() ? scanner_.blocks8 : scanner_.blocks16)(bounds, query_.tables(reach_));
    }

    void scan(const Super &super, std::uint64_t now, std::uint64_t live) {
        const Segment &segment = *super.segment;
        const std::size_t first = super.number * lane_count;
        const std::uint8_t *blocks = segment.blocks + first * n_bytes_ * lane_count;
        std::uint64_t survivors[lane_count];
        (query_.short_code() ? scanner_.rows8 : scanner_.rows16)(blocks, now, live, query_.tables(reach_), survivors);
        for (std::uint64_t left = now; left; left &= left - 1) {
            const std::size_t b = std::countr_zero(left);
            if (segment.wanted) survivors[b] &= segment.wanted[first + b];
            if ((first + b + 1) * lane_count > segment.n_rows)
                survivors[b] &= (std::uint64_t{1} << segment.n_rows % lane_count) - 1;
            // Ids are in another array: prefetch them.
            const std::int64_t *ids = segment.ids + (first + b) * lane_count;
            for (std::uint64_t rows = survivors[b]; rows; rows &= rows - 1)
                __builtin_prefetch(ids + std::countr_zero(rows));
        }
        for (; now; now &= now - 1) {
            const std::size_t b = std::countr_zero(now);
            for (std::uint64_t rows = survivors[b]; rows; rows &= rows - 1) {
                const std::size_t lane = std::countr_zero(rows);
                consider(super, (first + b) * lane_count + lane, blocks + b * n_bytes_ * lane_count + lane);
            }
        }
    }

    void consider(const Super &super, std::size_t row, const std::uint8_t *bytes) {
        const float bound = query_.row_bound(bytes);
        if (bound > reach_) return;
        const std::int64_t number = super.segment_row + static_cast<std::int64_t>(row);
        const float distance = query_.distance_from_bound(bound, bytes);
        if (top_.add({distance, super.segment->ids[row], number})) reach_ = query_.reach(top_.limit());
    }

    Query query_;
    std::size_t n_bytes_;
    const Scanner &scanner_;
    TopK top_;
    float reach_;
    std::vector<std::uint64_t> scanned_;  // per super-block, the blocks scanned before it is visited
    std::vector<float> bounds_;           // per super-block; infinity once visited
};

std::vector<Super> supers_of(const Search &task) {
    std::vector<Super> out;
    std::int64_t row = 0;
    for (const Segment &segment : task.segments) {
        for (std::size_t i = 0; i < segment.n_supers(); ++i) out.push_back({&segment, i, row});
        row += static_cast<std::int64_t>(segment.n_rows);
    }
    return out;
}

// Search for one query with all threads.
std::vector<Hit> search_one_query(const Search &task, std::size_t q, const std::vector<Super> &supers) {
    Pass pass(task, q, supers);
    pass.best_first(supers);
    std::vector<std::size_t> left;
    for (std::size_t i = 0; i < supers.size(); ++i)
        if (pass.within_reach(i)) left.push_back(i);
    const std::size_t n_threads = std::min(task.n_threads, 1 + left.size() / supers_worth_a_thread);
    std::atomic<float> shared{pass.top().limit()};
    std::atomic<std::size_t> next{0};
    std::vector<TopK> tops(n_threads, TopK(task.k, task.radius));
    parallel_for(n_threads, n_threads, [&](std::size_t t) {
        Pass thread_pass = pass;
        if (t) thread_pass.forget_hits(task.k, task.radius);  // thread 0 keeps them
        constexpr std::size_t run = 8;
        for (std::size_t start; (start = next.fetch_add(run, std::memory_order_relaxed)) < left.size();)
            for (std::size_t i = start; i < std::min(start + run, left.size()); ++i) {
                thread_pass.share_limit(shared);
                thread_pass.visit_if_needed(supers, left[i]);
            }
        tops[t] = thread_pass.top();
    });
    for (std::size_t t = 1; t < n_threads; ++t)
        for (const Hit &hit : tops[t].hits()) tops[0].add(hit);
    return tops[0].sorted();
}

}  // namespace

std::vector<std::vector<Hit>> search(const Search &task) {
    const std::vector<Super> supers = supers_of(task);
    std::vector<std::vector<Hit>> out(task.n_queries);
    if (task.n_queries < task.n_threads) {
        for (std::size_t q = 0; q < task.n_queries; ++q) out[q] = search_one_query(task, q, supers);
        return out;
    }
    const std::size_t together =
        std::clamp(task.n_queries / std::max<std::size_t>(1, task.n_threads), std::size_t{1}, queries_together);
    parallel_for((task.n_queries + together - 1) / together, task.n_threads, [&](std::size_t group) {
        std::vector<Pass> passes;
        for (std::size_t q = group * together; q < std::min(task.n_queries, (group + 1) * together); ++q) {
            passes.emplace_back(task, q, supers);
            passes.back().best_first(supers);
        }
        for (std::size_t i = 0; i < supers.size(); ++i)
            for (Pass &pass : passes) pass.visit_if_needed(supers, i);
        for (std::size_t p = 0; p < passes.size(); ++p) out[group * together + p] = passes[p].top().sorted();
    });
    return out;
}

void score(const Search &task, const std::int64_t *rows, std::size_t n_columns, float *out) {
    const std::size_t n_bytes = task.order.n_bytes();
    parallel_for(task.n_queries, task.n_threads, [&](std::size_t q) {
        Query query(task.queries + q * n_bytes, task.weights + (task.weights_per_query ? q * task.order.n_bits : 0),
                    task.order);
        for (std::size_t i = q * n_columns; i < (q + 1) * n_columns; ++i) {
            out[i] = infinity;
            auto row = static_cast<std::size_t>(rows[i]);
            if (rows[i] < 0) continue;
            for (const Segment &segment : task.segments) {
                if (row < segment.n_rows) {
                    const std::uint8_t *block = segment.blocks + row / lane_count * n_bytes * lane_count;
                    out[i] = query.distance(block + row % lane_count);
                    break;
                }
                row -= segment.n_rows;
            }
        }
    });
}

}  // namespace bitrank
