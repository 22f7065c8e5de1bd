#include "ties.hpp"

namespace bitrank {

template <typename Key>
std::size_t tied_groups(const Key *keys, std::size_t n_rows, std::size_t n, const Groups &out, std::int64_t *bounds,
                        std::int64_t *totals) {
    std::size_t n_groups = 0;
    for (std::size_t row = 0; row < n_rows; ++row) {
        const Key *key = keys + row * n;
        std::int64_t n_hits = 0;
        bounds[row] = static_cast<std::int64_t>(n_groups);
        for (std::size_t i = 0; i < n; ++i) {
            if (!(key[i] & 1)) continue;
            // Relevant items are the last of their group: the others tied with them come just before.
            std::size_t start = i;
            while (start > 0 && key[start - 1] == key[i] - 1) --start;
            const std::size_t first = i;
            while (i + 1 < n && key[i + 1] == key[first]) ++i;
            const auto count = static_cast<std::int64_t>(i - first + 1);
            out.row[n_groups] = static_cast<std::int64_t>(row);
            out.start[n_groups] = static_cast<std::int64_t>(start);
            out.end[n_groups] = static_cast<std::int64_t>(i + 1);
            out.hits[n_groups] = n_hits;
            out.count[n_groups] = count;
            n_hits += count;
            ++n_groups;
        }
        totals[row] = n_hits;
    }
    bounds[n_rows] = static_cast<std::int64_t>(n_groups);
    return n_groups;
}

template std::size_t tied_groups(const std::uint32_t *, std::size_t, std::size_t, const Groups &, std::int64_t *,
                                 std::int64_t *);
template std::size_t tied_groups(const std::uint64_t *, std::size_t, std::size_t, const Groups &, std::int64_t *,
                                 std::int64_t *);

}  // namespace bitrank
