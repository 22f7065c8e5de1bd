#include "constraints.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

// Counting bits is most of the work here: let the loader pick the hardware's instruction where there is one.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define BITRANK_CLONES __attribute__((target_clones("arch=icelake-server", "arch=x86-64-v3", "default")))
#else
#define BITRANK_CLONES
#endif

namespace bitrank {
namespace {

// Adds to sums[i, j], j >= i, the inner products of columns of -1, 0 and 1: with common what is not zero in both,
// popcount(common) - 2 popcount(common where the signs differ).
BITRANK_CLONES
void add_products(const std::uint64_t *nonzero, const std::uint64_t *positive, std::size_t n_bits, std::size_t n_words,
                  std::int64_t *sums) {
    for (std::size_t i = 0; i < n_bits; ++i) {
        const std::uint64_t *a = nonzero + i * n_words, *p = positive + i * n_words;
        for (std::size_t j = i; j < n_bits; ++j) {
            const std::uint64_t *b = nonzero + j * n_words, *q = positive + j * n_words;
            std::int64_t both = 0, opposite = 0;
            for (std::size_t word = 0; word < n_words; ++word) {
                const std::uint64_t common = a[word] & b[word];
                both += std::popcount(common);
                opposite += std::popcount(common & (p[word] ^ q[word]));
            }
            sums[i * n_bits + j] += both - 2 * opposite;
        }
    }
}

// values . max(0, u), in eight sums that do not wait for each other: the same result on every machine.
BITRANK_CLONES
double dot_positive(const double *values, const double *u, std::size_t n) {
    double sums[8] = {};
    std::size_t k = 0;
    for (; k + 8 <= n; k += 8)
        for (std::size_t i = 0; i < 8; ++i) sums[i] += values[k + i] * (u[k + i] > 0.0 ? u[k + i] : 0.0);
    double rest = 0.0;
    for (; k < n; ++k) rest += values[k] * (u[k] > 0.0 ? u[k] : 0.0);
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7])) + rest;
}

// Rows of one strip, a multiple of 64: their transposed bits stay in the cache.
constexpr std::size_t strip = 64 * 128;

// Byte `byte` of 8 rows, as 8 columns of 8 bits (Hacker's Delight, transpose8).
std::uint64_t transpose8(std::uint64_t x) {
    std::uint64_t t = (x ^ (x >> 7)) & 0x00AA00AA00AA00AAULL;
    x ^= t ^ (t << 7);
    t = (x ^ (x >> 14)) & 0x0000CCCC0000CCCCULL;
    x ^= t ^ (t << 14);
    t = (x ^ (x >> 28)) & 0x00000000F0F0F0F0ULL;
    return x ^ t ^ (t << 28);
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
    for (std::size_t r = 0; r < rows.n_rows; ++r) {
        const std::uint8_t *plus = rows.plus + r * n_bytes, *minus = rows.minus + r * n_bytes;
        double far = 0.0, near = 0.0;
        for (std::size_t byte = 0; byte < n_bytes; ++byte) {
            far += tables[byte * 256 + plus[byte]];
            near += tables[byte * 256 + minus[byte]];
        }
        out[r] = far - near;
    }
}

void combine(const PackedRows &rows, const double *values, double *out) {
    // First the sum for every value of every byte, then for every bit the sum over the values that have it.
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
        const double *of_byte = &sums[bit / 8 * 256];
        out[bit] = 0.0;
        for (std::size_t value = 0; value < 256; ++value)
            if (value >> (7 - bit % 8) & 1) out[bit] += of_byte[value];
    }
}

void gram(const PackedRows &rows, const std::uint8_t *active, double *gram, double *total) {
    const std::size_t n_bytes = (rows.n_bits + 7) / 8, n_bits = rows.n_bits;
    std::vector<std::int64_t> sums(n_bits * n_bits, 0), columns(n_bits, 0);
    std::vector<std::uint64_t> nonzero(n_bytes * 8 * strip / 64), positive(n_bytes * 8 * strip / 64);
    std::vector<std::size_t> chosen;
    chosen.reserve(strip);
    for (std::size_t next = 0; next < rows.n_rows;) {
        chosen.clear();
        for (; next < rows.n_rows && chosen.size() < strip; ++next)
            if (!active || active[next]) chosen.push_back(next);
        if (chosen.empty()) break;
        const std::size_t n_words = (chosen.size() + 63) / 64;
        std::fill(nonzero.begin(), nonzero.end(), 0);
        std::fill(positive.begin(), positive.end(), 0);
        for (std::size_t first = 0; first < chosen.size(); first += 8)
            for (std::size_t byte = 0; byte < n_bytes; ++byte) {
                std::uint64_t some = 0, more = 0;
                for (std::size_t i = 0; i < std::min<std::size_t>(8, chosen.size() - first); ++i) {
                    const std::uint64_t plus = rows.plus[chosen[first + i] * n_bytes + byte];
                    const std::uint64_t minus = rows.minus[chosen[first + i] * n_bytes + byte];
                    some |= (plus ^ minus) << (8 * i);
                    more |= (plus & ~minus) << (8 * i);
                }
                some = transpose8(some);
                more = transpose8(more);
                for (std::size_t bit = 0; bit < 8; ++bit) {
                    // After the transposition byte b holds bit b, counted from the least significant one.
                    const std::size_t where = (byte * 8 + 7 - bit) * n_words + first / 64;
                    nonzero[where] |= (some >> (8 * bit) & 255) << (first % 64);
                    positive[where] |= (more >> (8 * bit) & 255) << (first % 64);
                }
            }
        for (std::size_t i = 0; i < n_bits; ++i) {
            for (std::size_t word = i * n_words; word < (i + 1) * n_words; ++word)
                columns[i] += 2 * std::popcount(positive[word]) - std::popcount(nonzero[word]);
        }
        add_products(nonzero.data(), positive.data(), n_bits, n_words, sums.data());
    }
    for (std::size_t i = 0; i < n_bits; ++i) {
        total[i] = static_cast<double>(columns[i]);
        for (std::size_t j = i; j < n_bits; ++j)
            gram[i * n_bits + j] = gram[j * n_bits + i] = static_cast<double>(sums[i * n_bits + j]);
    }
}

std::size_t passive_aggressive(const DenseRows &order, const DenseRows &tie, std::size_t n_bits, double c_order,
                               double c_tie, double tolerance, double *weights) {
    // The dual has one variable a row; w = max(0, w0 + sum of alpha_r row_r), and at the optimum
    // alpha_r = 2 c (target_r - row_r w), not negative for an order row.
    struct Row {
        const double *values;
        double target, slack, curvature, alpha;
        bool order;
    };
    std::vector<Row> rows;
    const auto add = [&](const DenseRows &some, double c, bool is_order) {
        for (std::size_t r = 0; c > 0 && r < some.n_rows; ++r) {
            const double *values = some.values + r * n_bits;
            double square = 0.0;
            for (std::size_t k = 0; k < n_bits; ++k) square += values[k] * values[k];
            if (square > 0) rows.push_back({values, is_order ? 1.0 : 0.0, 0.5 / c, square + 0.5 / c, 0.0, is_order});
        }
    };
    add(order, c_order, true);
    add(tie, c_tie, false);
    std::vector<double> u(weights, weights + n_bits);
    std::size_t sweep = 0;
    for (; sweep < 10000; ++sweep) {
        double largest = 0.0;
        for (Row &row : rows) {
            const double product = dot_positive(row.values, u.data(), n_bits);
            double alpha = row.alpha + (row.target - product - row.slack * row.alpha) / row.curvature;
            if (row.order) alpha = std::max(0.0, alpha);
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
