// Order and tie constraints as packed rows: a row is the difference of two code differences, plus - minus, with entries
// -1, 0 and 1. Products with such rows, and one passive-aggressive update.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitrank {

struct PackedRows {
    const std::uint8_t *plus;   // n_rows x n_bytes
    const std::uint8_t *minus;  // n_rows x n_bytes
    std::size_t n_rows;
    std::size_t n_bits;
};

// out[r] = row_r . weights, summed in double.
void margins(const PackedRows &rows, const double *weights, double *out);

// out = sum_r values[r] row_r, n_bits values.
void combine(const PackedRows &rows, const double *values, double *out);

struct DenseRows {
    const double *values;  // n_rows x n_bits
    std::size_t n_rows;
};

// Minimise 1/2 |w - w0|^2 + c_order sum_r max(0, 1 - order_r . w)^2 + c_tie sum_r (tie_r . w)^2 over w >= 0, from
// w0 = weights, by coordinate ascent in the dual; meant for a handful of rows. Return the number of sweeps; if it is
// max_sweeps, the weights have not converged.
std::size_t passive_aggressive(const DenseRows &order, const DenseRows &tie, std::size_t n_bits, double c_order,
                               double c_tie, double tolerance, std::size_t max_sweeps, double *weights);

}  // namespace bitrank
