#include "constraints.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

namespace bitrank {
namespace {

// Adds to total[i] the sums of columns of -1, 0 and 1, and to gram[i, j], j >= i, their inner products: with common
// what is not zero in both, popcount(common) - 2 popcount(common where the signs differ). Columns go in pairs, so that
// a word read serves twice.
inline __attribute__((always_inline)) void add_products(const std::uint64_t *nonzero,
                                                             const std::uint64_t *positive, std::size_t n_bits,
                                                             std::size_t n_words, double sign,
                                                             double *gram, double *total) {
    for (std::size_t i = 0; i < n_bits; ++i) {
        std::int64_t some = 0, more = 0;
        for (std::size_t word = i * n_words; word < (i + 1) * n_words; ++word) {
            some += std::popcount(nonzero[word]);
            more += std::popcount(positive[word]);
        }
        total[i] += sign * static_cast<double>(2 * more - some);
    }
    const auto add = [&](std::size_t i, std::size_t j, std::int64_t both, std::int64_t opposite) {
        gram[i * n_bits + j] += sign * static_cast<double>(both - 2 * opposite);
    };
    for (std::size_t i = 0; i < n_bits; i += 2) {
        const std::size_t next_i = std::min(i + 1, n_bits - 1);
        const std::uint64_t *a0 = nonzero + i * n_words, *p0 = positive + i * n_words;
        const std::uint64_t *a1 = nonzero + next_i * n_words, *p1 = positive + next_i * n_words;
        for (std::size_t j = i; j < n_bits; j += 2) {
            const std::size_t next_j = std::min(j + 1, n_bits - 1);
            const std::uint64_t *b0 = nonzero + j * n_words, *q0 = positive + j * n_words;
            const std::uint64_t *b1 = nonzero + next_j * n_words, *q1 = positive + next_j * n_words;
            std::int64_t both[4] = {}, opposite[4] = {};
            for (std::size_t word = 0; word < n_words; ++word) {
                const std::uint64_t c0 = a0[word] & b0[word], c1 = a0[word] & b1[word];
                const std::uint64_t c2 = a1[word] & b0[word], c3 = a1[word] & b1[word];
                both[0] += std::popcount(c0);
                both[1] += std::popcount(c1);
                both[2] += std::popcount(c2);
                both[3] += std::popcount(c3);
                opposite[0] += std::popcount(c0 & (p0[word] ^ q0[word]));
                opposite[1] += std::popcount(c1 & (p0[word] ^ q1[word]));
                opposite[2] += std::popcount(c2 & (p1[word] ^ q0[word]));
                opposite[3] += std::popcount(c3 & (p1[word] ^ q1[word]));
            }
            add(i, j, both[0], opposite[0]);
            if (next_j > j) add(i, next_j, both[1], opposite[1]);
            if (next_i > i && j > i) add(next_i, j, both[2], opposite[2]);
            if (next_i > i && next_j > j) add(next_i, next_j, both[3], opposite[3]);
        }
    }
}

// Transposes 64 x 64 bits, the most significant bit being the first column (Hacker's Delight, 7-3).
inline __attribute__((always_inline)) void transpose64(std::uint64_t *rows) {
    std::uint64_t mask = 0x00000000FFFFFFFFULL;
    for (std::size_t half = 32; half != 0; half >>= 1, mask ^= mask << half)
        for (std::size_t first = 0; first < 64; first += 2 * half)
            for (std::size_t k = first; k < first + half; ++k) {
                const std::uint64_t swap = (rows[k] ^ (rows[k + half] >> half)) & mask;
                rows[k] ^= swap;
                rows[k + half] ^= swap << half;
            }
}

// values . max(0, u), in eight sums that do not wait for each other: the same result on every machine.
double dot_positive(const double *values, const double *u, std::size_t n) {
    double sums[8] = {};
    std::size_t k = 0;
    for (; k + 8 <= n; k += 8)
        for (std::size_t i = 0; i < 8; ++i) sums[i] += values[k + i] * (u[k + i] > 0.0 ? u[k + i] : 0.0);
    double rest = 0.0;
    for (; k < n; ++k) rest += values[k] * (u[k] > 0.0 ? u[k] : 0.0);
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7])) + rest;
}

// Rows of one strip, a multiple of 512: their transposed bits stay in the cache.
constexpr std::size_t strip = 512 * 16;

// Eight bytes from `from` on, or as many as there are, the first one most significant.
inline __attribute__((always_inline)) std::uint64_t big_endian(const std::uint8_t *from, std::size_t n_bytes) {
    std::uint64_t word = 0;
    if (n_bytes >= 8)
        std::memcpy(&word, from, 8);
    else
        std::memcpy(&word, from, n_bytes);
    if constexpr (std::endian::native == std::endian::little) word = __builtin_bswap64(word);
    return word;
}

inline __attribute__((always_inline)) void add_gram_with(const PackedRows &rows, const std::uint8_t *active,
                                                         double sign, double *gram, double *total) {
    const std::size_t n_bytes = (rows.n_bits + 7) / 8, n_bits = rows.n_bits;
    std::vector<std::uint64_t> nonzero(n_bits * (std::min(rows.n_rows + 511, strip) / 64)), positive(nonzero.size());
    std::vector<std::size_t> chosen;
    chosen.reserve(strip);
    for (std::size_t next = 0; next < rows.n_rows;) {
        chosen.clear();
        for (; next < rows.n_rows && chosen.size() < strip; ++next)
            if (active[next]) chosen.push_back(next);
        if (chosen.empty()) break;
        // Words of zeros to a full vector: a rest done word by word would cost as much as the vectors.
        const std::size_t n_words = (chosen.size() + 511) / 512 * 8;
        for (std::size_t first = 0; first < 64 * n_words; first += 64)
            for (std::size_t bit = 0; bit < n_bits; bit += 64) {
                std::uint64_t some[64] = {}, more[64] = {};
                for (std::size_t i = 0; i < 64 && first + i < chosen.size(); ++i) {
                    const std::size_t where = chosen[first + i] * n_bytes + bit / 8;
                    const std::uint64_t plus = big_endian(rows.plus + where, n_bytes - bit / 8);
                    const std::uint64_t minus = big_endian(rows.minus + where, n_bytes - bit / 8);
                    some[i] = plus ^ minus;
                    more[i] = plus & ~minus;
                }
                transpose64(some);
                transpose64(more);
                for (std::size_t column = 0; column < std::min<std::size_t>(64, n_bits - bit); ++column) {
                    nonzero[(bit + column) * n_words + first / 64] = some[column];
                    positive[(bit + column) * n_words + first / 64] = more[column];
                }
            }
        add_products(nonzero.data(), positive.data(), n_bits, n_words, sign, gram, total);
    }
    for (std::size_t i = 0; i < n_bits; ++i)
        for (std::size_t j = 0; j < i; ++j) gram[i * n_bits + j] = gram[j * n_bits + i];
}

// Counting bits is most of the work: the same lines, compiled also for processors that count a vector at a time.
#if defined(__x86_64__)
__attribute__((target("popcnt,avx512bw,avx512vpopcntdq"))) void add_gram_avx512(const PackedRows &rows,
                                                                                const std::uint8_t *active,
                                                                                double sign, double *gram,
                                                                                double *total) {
    add_gram_with(rows, active, sign, gram, total);
}

__attribute__((target("popcnt"))) void add_gram_popcnt(const PackedRows &rows, const std::uint8_t *active,
                                                       double sign, double *gram, double *total) {
    add_gram_with(rows, active, sign, gram, total);
}
#endif

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
    // Sums over every other byte, which do not wait for each other.
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

void add_gram(const PackedRows &rows, const std::uint8_t *active, double sign, double *gram, double *total) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512vpopcntdq")) return add_gram_avx512(rows, active, sign, gram, total);
    if (__builtin_cpu_supports("popcnt")) return add_gram_popcnt(rows, active, sign, gram, total);
#endif
    add_gram_with(rows, active, sign, gram, total);
}

std::size_t passive_aggressive(const DenseRows &order, const DenseRows &tie, std::size_t n_bits, double c_order,
                               double c_tie, double tolerance, std::size_t max_sweeps, double *weights) {
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
    for (; sweep < max_sweeps; ++sweep) {
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
