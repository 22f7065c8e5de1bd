#include "constraints.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

namespace bitrank {
namespace {

// values . max(0, u) in eight independent sums: fast without reordering, so that results are equal on every machine.
double dot_positive(const double *values, const double *u, std::size_t n) {
    double sums[8] = {};
    std::size_t k = 0;
    for (; k + 8 <= n; k += 8)
        for (std::size_t i = 0; i < 8; ++i) sums[i] += values[k + i] * (u[k + i] > 0.0 ? u[k + i] : 0.0);
    double rest = 0.0;
    for (; k < n; ++k) rest += values[k] * (u[k] > 0.0 ? u[k] : 0.0);
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7])) + rest;
}

}  // namespace

void margins(const PackedRows &rows, const double *weights, double *out) {
    const std::size_t n_bytes = (rows.n_bits + 7) / 8;
    std::vector<double> tables(n_bytes * 256, 0.0);
    for (std::size_t byte = 0; byte < n_bytes; ++byte)
        for (std::size_t value = 1; value < 256; ++value) {
            const std::size_t bit = byte * 8 + 7 - static_cast<std::size_t>(std::countr_zero(value));
            tables[byte * 256 + value] =
                tables[byte * 256 + (value & (value - 1))] + (bit < rows.n_bits ? weights[bit] : 0.0);
        }
    // Two independent sums, over even and odd bytes, so that additions overlap.
    for (std::size_t r = 0; r < rows.n_rows; ++r) {
        const std::uint8_t *plus = rows.plus + r * n_bytes, *minus = rows.minus + r * n_bytes;
        const double *table = tables.data();
        double even = 0.0, odd = 0.0;
        std::size_t byte = 0;
        for (; byte + 2 <= n_bytes; byte += 2, table += 512) {
            even += table[plus[byte]] - table[minus[byte]];
            odd += table[256 + plus[byte + 1]] - table[256 + minus[byte + 1]];
        }
        if (byte < n_bytes) even += table[plus[byte]] - table[minus[byte]];
        out[r] = even + odd;
    }
}

void combine(const PackedRows &rows, const double *values, double *out) {
    // Sum per value of each byte first, then per bit over the values that contain it.
    const std::size_t n_bytes = (rows.n_bits + 7) / 8;
    std::vector<double> sums(n_bytes * 256, 0.0);
    for (std::size_t r = 0; r < rows.n_rows; ++r) {
        const double value = values[r];
        if (value == 0.0) continue;
        const std::uint8_t *plus = rows.plus + r * n_bytes, *minus = rows.minus + r * n_bytes;
        for (std::size_t byte = 0; byte < n_bytes; ++byte) {
            sums[byte * 256 + plus[byte]] += value;
            sums[byte * 256 + minus[byte]] -= value;
        }
    }
    for (std::size_t bit = 0; bit < rows.n_bits; ++bit) {
        const double *byte_sums = &sums[bit / 8 * 256];
        out[bit] = 0.0;
        for (std::size_t value = 0; value < 256; ++value)
            if (value >> (7 - bit % 8) & 1) out[bit] += byte_sums[value];
    }
}

std::size_t passive_aggressive(const DenseRows &order, const DenseRows &tie, std::size_t n_bits, double c_order,
                               double c_tie, double tolerance, std::size_t max_sweeps, double *weights) {
    // The dual has one variable per row; w = max(0, w0 + sum_r alpha_r row_r), and at the optimum
    // alpha_r = 2 c (target_r - row_r . w), non-negative for order rows.
    struct Row {
        const double *values;
        double target, slack, curvature, alpha;
        bool is_order;
    };
    std::vector<Row> rows;
    const auto add = [&](const DenseRows &dense, double c, bool is_order) {
        for (std::size_t r = 0; c > 0 && r < dense.n_rows; ++r) {
            const double *values = dense.values + r * n_bits;
            double square = 0.0;
            for (std::size_t k = 0; k < n_bits; ++k) square += values[k] * values[k];
            if (square > 0) rows.push_back({values, is_order ? 1.0 : 0.0, 0.5 / c, square + 0.5 / c, 0.0, is_order});
        }
    };
    add(order, c_order, true);
    add(tie, c_tie, false);
    std::vector<double> u(weights, weights + n_bits);
    std::size_t sweep = 0;
    for (; sweep < max_sweeps; ++sweep) {
        double largest = 0.0;
        for (Row &row : rows) {
            const double product = dot_positive(row.values, u.data(), n_bits);
            double alpha = row.alpha + (row.target - product - row.slack * row.alpha) / row.curvature;
            if (row.is_order) alpha = std::max(0.0, alpha);
            const double change = alpha - row.alpha;
            if (change == 0.0) continue;
            for (std::size_t k = 0; k < n_bits; ++k) u[k] += change * row.values[k];
            row.alpha = alpha;
            largest = std::max(largest, std::abs(change) * std::sqrt(row.curvature));
        }
        if (largest <= tolerance) break;
    }
    for (std::size_t k = 0; k < n_bits; ++k) weights[k] = std::max(0.0, u[k]);
    return sweep;
}

}  // namespace bitrank
