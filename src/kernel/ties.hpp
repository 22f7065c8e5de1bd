// Groups of tied items in sorted rankings; ranking measures are sums over them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitrank {

// Output arrays, with room for one group per relevant item.
struct Groups {
    std::int64_t *row;          // the ranking
    std::int64_t *start, *end;  // the ranks of the group, end excluded
    std::int64_t *hits;         // relevant items before the group
    std::int64_t *count;        // relevant items in the group
};

// Find the groups that contain relevant items. Keys are n_rows x n, sorted per row: a distance, with relevance in the
// lowest bit. The groups of a row are bounds[row] to bounds[row + 1]; it has totals[row] relevant items. Return the
// number of groups.
template <typename Key>
std::size_t tied_groups(const Key *keys, std::size_t n_rows, std::size_t n, const Groups &out, std::int64_t *bounds,
                        std::int64_t *totals);

}  // namespace bitrank
