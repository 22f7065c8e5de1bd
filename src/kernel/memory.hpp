// Items that judged queries name, and how they are lifted in the results of a search: src/bitrank/ranking/memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bitrank {

// The items that each judged query names: items[starts[j]] to items[starts[j + 1]], pinned or not.
struct Lists {
    const std::int64_t *starts;
    std::size_t n_judged;
    const std::int64_t *items;
    const std::uint8_t *pinned;
};

// Similarities are (total - 2 * distance) * unit, by the scale of each query.
struct Scale {
    const double *totals, *units;
};

// How near judged queries must be to lift anything, three rows of n_queries: the similarity less the offset from which an
// item may come among the results, since a lift is at least as good as the last of them, and no item's own similarity is
// above that of the first; the similarity from which pinned items are lifted, a share of that of the query to itself; and
// the distance within which all such judged queries are.
struct Limiting {
    std::size_t n_queries, k;
    const float *distances;  // n_queries x k, of the plain search
    Scale ranked, asked;     // of queries to items, and of queries to judged queries
    double offset, tie, pivot, pinned_share;
    bool any_pinned;
};
std::vector<float> lift_limits(const Limiting &task);

// An item, the similarity (less the offset, or plus one) of the nearest judged query that names it, and that query.
struct Named {
    std::int64_t item;
    float similarity;
    std::int64_t judged;
};

// For each query the items that its judged queries (n_queries x n_judged, -1 for none) name, each once, ascending,
// where the similarity less the offset exceeds the query's floor. A pinned item comes before all others, its similarity
// plus one, where the similarity reaches the query's pinned floor.
struct Naming {
    const std::int64_t *judged;
    const float *similarities;
    std::size_t n_queries, n_judged;
    const float *floors, *pinned_floors;
    float offset;
};
std::vector<std::vector<Named>> named(const Naming &task, const Lists &lists, std::size_t n_threads);

// Lift named items: the score of one is similarity + tie * (plain - pivot) where that exceeds its plain similarity,
// (total - 2 * distance) * unit, for the `most` best of each query. Results are ordered by distance and id again.
struct Lifting {
    std::size_t n_queries, k, width;
    std::int64_t *ids;            // n_queries x k, of the plain search, replaced
    float *distances;             // the same
    const std::int64_t *items;    // n_queries x width, -1 for none
    const float *similarities;    // the same
    const std::int64_t *judged;   // the same: the judged query that names the item
    const float *item_distances;  // the same; infinite where the search must not find the item
    Scale scale;
    double tie, pivot;
    std::size_t most;
    std::int64_t *by;  // n_queries x k: the judged query that lifted the result, or -1
};
void lift(const Lifting &task, std::size_t n_threads);

}  // namespace bitrank
