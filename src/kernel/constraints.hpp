// Order and tie constraints held as packed bits: a row is the difference of two code differences, plus - minus, with
// values -1, 0 and 1. Products with such rows, and one passive-aggressive update from a few of them.
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

// out[r] = row r times weights, summed in double.
void margins(const PackedRows &rows, const double *weights, double *out);

// out = sum over rows r of values[r] times row r, n_bits.
void combine(const PackedRows &rows, const double *values, double *out);

// Adds factor times the sums over the rows r of signs[r], which is -1, 0 or 1, times row^T row to gram, n_bits x n_bits
// and symmetric, and times row to total, n_bits. The sums are whole numbers, counted exactly.
void add_gram(const PackedRows &rows, const std::int8_t *signs, double factor, double *gram, double *total);

// The minimum of 1/2 |w - w0|^2 + c_order sum max(0, 1 - order_r w)^2 + c_tie sum (tie_r w)^2 over w >= 0, by
// coordinate ascent in the dual: made for a handful of rows. Rows are dense. Returns the number of sweeps; when it
// is max_sweeps, the weights are short of the minimum.
struct DenseRows {
    const double *values;  // n_rows x n_bits
    std::size_t n_rows;
};
std::size_t passive_aggressive(const DenseRows &order, const DenseRows &tie, std::size_t n_bits, double c_order,
                               double c_tie, double tolerance, std::size_t max_sweeps, double *weights);

}  // namespace bitrank
