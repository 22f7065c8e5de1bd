// Search in chosen blocks, in the caller's order: what is not read is not found.
#pragma once

#include "search.hpp"

namespace bitrank {

struct Chosen {
    const std::int64_t *blocks;  // n_queries x n_columns, numbered across all segments, nearest first
    const float *floors;         // of the same shape: blocks past the first `n_sure` are read if theirs is within the limit
    std::size_t n_columns, n_sure;
};

// Hits per query, nearest first; n_read counts the blocks that each query has read.
std::vector<std::vector<Hit>> search_chosen(const Search &given, const Chosen &chosen, std::int64_t *n_read);

}  // namespace bitrank
