#include "search.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "parallel.hpp"
#include "pass.hpp"

namespace bitrank {
namespace {

// Queries that share a super-block while it is in the cache: fewer, whose tables stay there too, of codes that do.
constexpr std::size_t queries_together = 64, queries_together_in_cache = 16, bytes_in_cache = std::size_t{1} << 24;

// Super-blocks visited best first, to bring the limit near its final value; the rest follow in memory order. Those of
// long codes differ little in their bounds.
constexpr std::size_t supers_best_first = 32, supers_best_first_of_long_codes = 4;

// Queries that share their scans visit at most one of this many super-blocks best first, each on its own, and at most
// one for this many hits.
constexpr std::size_t supers_per_best = 32, hits_per_best = 60;

// Start one thread per this many super-blocks; fewer do not pay for a thread.
constexpr std::size_t supers_worth_a_thread = 64;

// How many super-blocks a query visits best first that shares no scans.
std::size_t n_best_alone(const Search &task) {
    return task.order.n_bytes() > most_bytes_of_sums8 ? supers_best_first_of_long_codes : supers_best_first;
}

// Search for one query with all threads.
std::vector<Hit> search_one_query(const Search &task, std::size_t q, const std::vector<Super> &supers) {
    Pass pass(task, q, supers);
    pass.best_first(supers, n_best_alone(task));
    std::vector<std::size_t> left;
    for (std::size_t i = 0; i < supers.size(); ++i)
        if (pass.within_limit(i)) left.push_back(i);
    const std::size_t n_threads = std::min(task.n_threads, 1 + left.size() / supers_worth_a_thread);
    if (n_threads == 1) {
        for (const std::size_t i : left) pass.visit_if_needed(supers, i);
        return pass.finished_top().take(task.sorted);
    }
    std::atomic<float> shared{pass.finished_top().limit()};
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
        tops[t] = thread_pass.finished_top();
    });
    for (std::size_t t = 1; t < n_threads; ++t)
        for (const Hit &hit : tops[t].hits()) tops[0].add(hit);
    return tops[0].take(task.sorted);
}

}  // namespace

std::vector<std::vector<Hit>> search(const Search &given) {
    const Search task = given.with_prepared_weights();
    const std::vector<Super> supers = supers_of(task);
    std::vector<std::vector<Hit>> out(task.n_queries);
    if (task.n_queries < std::max(task.n_threads, std::size_t{2})) {
        for (std::size_t q = 0; q < task.n_queries; ++q) out[q] = search_one_query(task, q, supers);
        return out;
    }
    const std::size_t n_shared = 1 + std::min(supers.size() / supers_per_best, task.k / hits_per_best);
    const bool in_cache = supers.size() * super_rows * task.order.n_bytes() <= bytes_in_cache;
    const std::size_t most_together = supers.size() <= n_shared ? 1 : in_cache ? queries_together_in_cache : queries_together;
    const std::size_t together =
        std::clamp(task.n_queries / std::max<std::size_t>(1, task.n_threads), std::size_t{1}, most_together);
    parallel_for((task.n_queries + together - 1) / together, task.n_threads, [&](std::size_t group) {
        std::vector<Pass> passes;
        passes.reserve(together);
        for (std::size_t q = group * together; q < std::min(task.n_queries, (group + 1) * together); ++q) {
            passes.emplace_back(task, q, supers);
            const std::size_t n_alone = n_best_alone(task);
            passes.back().best_first(supers, together < queries_per_scan ? n_alone : std::min(n_alone, n_shared));
        }
        AlignedBytes prepared(passes[0].prepared_size());
        for (std::size_t i = 0; i < supers.size(); ++i) Pass::visit_together(passes, supers, i, prepared);
        for (std::size_t p = 0; p < passes.size(); ++p) out[group * together + p] = passes[p].finished_top().take(task.sorted);
    });
    return out;
}

namespace {

// Where bits of the caller lie in rows of both parts.
struct Layout {
    std::size_t n_bytes, n_scanned;  // bytes of a code, and of those in blocks
    std::vector<std::uint16_t> positions;
    std::vector<BitPlace> places;

    explicit Layout(const Whole &task)
        : n_bytes((task.n_bits + 7) / 8), n_scanned(task.order.n_bytes()), positions(task.n_bits), places(task.n_bits) {
        for (std::size_t i = 0; i < task.n_bits; ++i) {
            const std::size_t bit = i < task.order.n_bits ? task.order.bits[i] : i;
            positions[bit] = static_cast<std::uint16_t>(i);
            places[bit] = {static_cast<std::uint32_t>(i / 8 * rows_together), (0x80u >> i % 8) * 0x01010101u};
        }
    }
};

// Set distance_of(i) to the distance of query q to row_of(i), for i < n.
template <typename RowOf, typename DistanceOf>
void score_rows(const Whole &task, const Layout &layout, std::size_t q, std::size_t n, RowOf row_of,
                DistanceOf distance_of) {
    std::vector<std::uint8_t> code(layout.n_bytes, 0), joined(layout.n_bytes);
    for (std::size_t bit = 0; bit < task.n_bits; ++bit)
        if (task.queries[q * layout.n_bytes + bit / 8] & 0x80 >> bit % 8)
            code[layout.positions[bit] / 8] |= static_cast<std::uint8_t>(0x80 >> layout.positions[bit] % 8);
    const float *weights = task.weights + (task.weights_per_query ? q * task.n_bits : 0);
    const std::size_t n_rest = layout.n_bytes - layout.n_scanned;
    std::vector<std::uint32_t> differences(layout.n_bytes * rows_together, 0);
    std::size_t columns[rows_together], count = 0;
    float distances[rows_together];
    const auto flush = [&] {
        task.scanner->distances(differences.data(), layout.places.data(), weights, task.n_bits, distances);
        for (std::size_t i = 0; i < count; ++i) distance_of(columns[i]) = distances[i];
        count = 0;
    };
    for (std::size_t i = 0; i < n; ++i) {
        distance_of(i) = infinity;
        auto row = static_cast<std::size_t>(row_of(i));
        if (row_of(i) < 0) continue;
        for (const Segment &segment : task.segments) {
            if (row < segment.n_rows) {
                const std::uint8_t *lane = segment.blocks + row / lane_count * layout.n_scanned * lane_count + row % lane_count;
                if (n_rest) {
                    for (std::size_t byte = 0; byte < layout.n_scanned; ++byte) joined[byte] = lane[byte * lane_count];
                    std::copy_n(segment.rest + row * n_rest, n_rest, joined.data() + layout.n_scanned);
                }
                task.scanner->set_row(n_rest ? joined.data() : lane, n_rest ? 1 : lane_count, code.data(), layout.n_bytes,
                                      count, differences.data());
                columns[count++] = i;
                if (count == rows_together) flush();
                break;
            }
            row -= segment.n_rows;
        }
    }
    if (count) flush();
}

// The rest of a row, counted over all segments.
const std::uint8_t *rest_of(const Whole &task, const Layout &layout, std::int64_t number) {
    auto row = static_cast<std::size_t>(number);
    for (const Segment &segment : task.segments) {
        if (row < segment.n_rows) return segment.rest + row * (layout.n_bytes - layout.n_scanned);
        row -= segment.n_rows;
    }
    return nullptr;
}

// Fetch the rest of the rows of hits, which lie far apart.
void prefetch(const Whole &task, const Layout &layout, const std::vector<Hit> &hits) {
    for (const Hit &hit : hits) {
        const std::uint8_t *first = rest_of(task, layout, hit.row);
        for (std::size_t byte = 0; byte < layout.n_bytes - layout.n_scanned; byte += 64) __builtin_prefetch(first + byte);
    }
}

// The bytes in blocks of a row, with bits in the caller's order.
void copy_head(const Whole &task, bool in_order, std::int64_t number, std::uint8_t *out) {
    auto row = static_cast<std::size_t>(number);
    const Segment *segment = task.segments.data();
    for (; row >= segment->n_rows; ++segment) row -= segment->n_rows;
    const std::size_t n = task.order.n_bytes();
    const std::uint8_t *lane = segment->blocks + row / lane_count * n * lane_count + row % lane_count;
    if (in_order) {
        for (std::size_t byte = 0; byte < n; ++byte) out[byte] = lane[byte * lane_count];
        return;
    }
    std::fill_n(out, n, std::uint8_t{0});
    for (std::size_t i = 0; i < task.order.n_bits; ++i)
        if (lane[i / 8 * lane_count] & 0x80 >> i % 8)
            out[task.order.bits[i] / 8] |= static_cast<std::uint8_t>(0x80 >> task.order.bits[i] % 8);
}

// Keep the k nearest by whole codes, with their estimates for distances.
void estimate(const Whole &task, const Layout &layout, const Estimates &estimates, std::size_t q, std::size_t k,
              std::vector<Hit> &hits) {
    const std::size_t n_head = layout.n_scanned, n_rest = layout.n_bytes - n_head;
    bool in_order = true;
    for (std::size_t i = 0; i < task.order.n_bits; ++i) in_order &= task.order.bits[i] == i;
    std::vector<float> weights(layout.n_bytes * 8, 0);
    std::copy_n(task.weights + (task.weights_per_query ? q * task.n_bits : 0), task.n_bits, weights.data());
    std::vector<float, LineAllocator<float>> tables(layout.n_bytes * 32);
    task.scanner->half_byte_tables(task.queries + q * layout.n_bytes, weights.data(), layout.n_bytes, tables.data());
    std::vector<std::uint8_t> heads(rows_together * n_head);
    for (std::size_t first = 0; first < hits.size(); first += rows_together) {
        const std::uint8_t *rows[2][rows_together];
        const std::size_t n = std::min(rows_together, hits.size() - first);
        for (std::size_t i = 0; i < rows_together; ++i) {
            if (i < n) copy_head(task, in_order, hits[first + i].row, &heads[i * n_head]);
            rows[0][i] = &heads[i * n_head];
            rows[1][i] = rest_of(task, layout, hits[first + (i < n ? i : 0)].row);
        }
        float sums[rows_together] = {};
        task.scanner->half_byte_sums(rows[0], n_head, tables.data(), sums);
        task.scanner->half_byte_sums(rows[1], n_rest, tables.data() + 32 * n_head, sums);
        for (std::size_t i = 0; i < n; ++i) hits[first + i].distance = sums[i];
    }
    if (hits.size() > k) {
        std::nth_element(hits.begin(), hits.begin() + static_cast<std::ptrdiff_t>(k), hits.end());
        hits.resize(k);
    }
    double totals[8] = {};
    for (std::size_t i = 0; i < weights.size(); ++i) totals[i % 8] += weights[i];
    const double *terms = estimates.terms + 3 * q, third = std::accumulate(totals, totals + 8, terms[2]);
    for (Hit &hit : hits) {
        double f = estimates.low;
        if (estimates.n_tail) {
            const std::uint8_t *end = rest_of(task, layout, hit.row) + n_rest;
            f += estimates.step * (estimates.n_tail == 1 ? end[-1] : end[-2] * 256 + end[-1]);
        }
        const double value = terms[0] + terms[1] * (third - 2.0 * hit.distance) / f;
        hit.distance = static_cast<float>(estimates.root ? std::sqrt(std::max(value, 0.0)) : value);
    }
    std::sort(hits.begin(), hits.end());
}

}  // namespace

void score(const Whole &task, const std::int64_t *rows, std::size_t n_columns, float *out) {
    const Layout layout(task);
    parallel_for(task.n_queries, task.n_threads, [&](std::size_t q) {
        score_rows(task, layout, q, n_columns, [&](std::size_t i) { return rows[q * n_columns + i]; },
                   [&](std::size_t i) -> float & { return out[q * n_columns + i]; });
    });
}

std::vector<std::vector<Hit>> search_again(const Whole &task, std::vector<std::vector<Hit>> hits, std::size_t k,
                                           const Estimates *estimates) {
    const Layout layout(task);
    parallel_for(task.n_queries, task.n_threads, [&](std::size_t q) {
        std::vector<Hit> &list = hits[q];
        prefetch(task, layout, list);
        if (estimates) return estimate(task, layout, *estimates, q, k, list);
        score_rows(task, layout, q, list.size(), [&](std::size_t i) { return list[i].row; },
                   [&](std::size_t i) -> float & { return list[i].distance; });
        std::sort(list.begin(), list.end());
        list.resize(std::min(k, list.size()));
    });
    return hits;
}

}  // namespace bitrank
