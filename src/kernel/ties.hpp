// Groups of tied items in rankings that were sorted: the measures of a ranking are sums over them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitrank {

// Where the groups go, all of them with room for one a relevant item: the ranking that it belongs to, the places of that
// ranking before it and with it, the relevant items before it and in it.
struct Groups {
    std::int64_t *row, *start, *end, *hits, *count;
};

// Keys are n_rows x n, each row in order: a distance, and in the lowest bit whether the item is relevant. Groups without
// a relevant item are left out. `bounds`, one more than there are rows, says where the groups of a row begin, `totals`
// how many relevant items it has. Returns the number of groups.
template <typename Key>
std::size_t tied_groups(const Key *keys, std::size_t n_rows, std::size_t n, const Groups &out, std::int64_t *bounds,
                        std::int64_t *totals);

}  // namespace bitrank
