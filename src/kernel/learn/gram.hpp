// The weighted Gram matrix of packed constraint rows, counted bit by bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "constraints.hpp"

namespace bitrank {

// The columns of a strip of rows, transposed: one bit per row, the first row most significant. Every column has n_words
// words, a multiple of eight.
struct Columns {
    std::uint64_t *nonzero;   // whether the entry is -1 or 1
    std::uint64_t *positive;  // whether the entry is 1
    std::uint64_t *flipped;   // `positive`, negated in rows of sign -1
    std::size_t n_bits, n_words;
};

// The inner loops of add_gram; one implementation per instruction set.
struct GramLoops {
    // Fill the columns from the chosen rows.
    void (*transpose)(const PackedRows &rows, const std::int8_t *signs, const std::size_t *chosen,
                      std::size_t n_chosen, const Columns &out);
    // Add factor times the inner products of columns i and j >= i to gram[i, j], and factor times the sum of column i
    // to total[i].
    void (*add_products)(const Columns &columns, double factor, double *gram, double *total);
};

// Add factor * sum_r signs[r] row_r^T row_r to gram (n_bits x n_bits, symmetric) and factor * sum_r signs[r] row_r to
// total (n_bits). Signs are -1, 0 or 1. The sums are integers, counted exactly.
void add_gram(const PackedRows &rows, const std::int8_t *signs, double factor, double *gram, double *total,
              const GramLoops &loops);

extern const GramLoops scalar_gram;
#if defined(__x86_64__)
extern const GramLoops avx2_gram;
extern const GramLoops avx512_gram;
#endif

}  // namespace bitrank
