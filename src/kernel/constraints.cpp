#include "constraints.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bitrank {
namespace {

// Columns of -1, 0 and 1 as bits, a bit a row: whether an entry is not zero, whether it is 1, and whether it is after
// a row that is subtracted has changed its sign.
struct Columns {
    const std::uint64_t *nonzero, *positive, *turned;
    std::size_t n_bits, n_words;
};

// Inner products of four columns with two others: with common what is not zero in both, popcount(common) less twice
// popcount(common where the signs differ). Eight at once, so that a word read serves more than once.
inline __attribute__((always_inline)) void products_plain(const Columns &columns, const std::size_t *left,
                                                          const std::size_t *right, std::int64_t *products) {
    for (std::size_t pair = 0; pair < 8; ++pair) {
        const std::size_t a = left[pair / 2] * columns.n_words, b = right[pair % 2] * columns.n_words;
        std::int64_t both = 0, opposite = 0;
        for (std::size_t word = 0; word < columns.n_words; ++word) {
            const std::uint64_t common = columns.nonzero[a + word] & columns.nonzero[b + word];
            both += std::popcount(common);
            opposite += std::popcount(common & (columns.turned[a + word] ^ columns.positive[b + word]));
        }
        products[pair] = both - 2 * opposite;
    }
}

#if defined(__x86_64__)
// The same a vector at a time; n_words is a multiple of eight.
__attribute__((target("avx512f,avx512vpopcntdq"))) void products_avx512(const Columns &columns,
                                                                       const std::size_t *left,
                                                                       const std::size_t *right,
                                                                       std::int64_t *products) {
    __m512i both[8] = {}, opposite[8] = {};
    for (std::size_t word = 0; word < columns.n_words; word += 8) {
        __m512i some[2], signs[2];
        for (std::size_t i = 0; i < 2; ++i) {
            some[i] = _mm512_loadu_si512(columns.nonzero + right[i] * columns.n_words + word);
            signs[i] = _mm512_loadu_si512(columns.positive + right[i] * columns.n_words + word);
        }
        for (std::size_t i = 0; i < 4; ++i) {
            const __m512i others = _mm512_loadu_si512(columns.nonzero + left[i] * columns.n_words + word);
            const __m512i turned = _mm512_loadu_si512(columns.turned + left[i] * columns.n_words + word);
            for (std::size_t j = 0; j < 2; ++j) {
                const __m512i common = _mm512_and_si512(others, some[j]);
                // common & (one sign ^ the other)
                const __m512i differ = _mm512_ternarylogic_epi64(common, turned, signs[j], 0x60);
                both[2 * i + j] = _mm512_add_epi64(both[2 * i + j], _mm512_popcnt_epi64(common));
                opposite[2 * i + j] = _mm512_add_epi64(opposite[2 * i + j], _mm512_popcnt_epi64(differ));
            }
        }
    }
    // Four sums at once: neighbours, then quarters, then halves.
    for (std::size_t four = 0; four < 8; four += 4) {
        __m512i sums[4];
        for (std::size_t i = 0; i < 4; ++i)
            sums[i] = _mm512_sub_epi64(both[four + i], _mm512_add_epi64(opposite[four + i], opposite[four + i]));
        const __m512i first = _mm512_add_epi64(_mm512_unpacklo_epi64(sums[0], sums[1]),
                                               _mm512_unpackhi_epi64(sums[0], sums[1]));
        const __m512i second = _mm512_add_epi64(_mm512_unpacklo_epi64(sums[2], sums[3]),
                                                _mm512_unpackhi_epi64(sums[2], sums[3]));
        const __m512i quarters = _mm512_add_epi64(
            _mm512_permutex2var_epi64(first, _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13), second),
            _mm512_permutex2var_epi64(first, _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15), second));
        _mm256_storeu_si256(
            reinterpret_cast<__m256i *>(products + four),
            _mm256_add_epi64(_mm512_castsi512_si256(quarters), _mm512_extracti64x4_epi64(quarters, 1)));
    }
}
#endif

// Transposes eight times 64 x 64 bits side by side, the most significant bit being the first column (Hacker's Delight,
// 7-3).
inline __attribute__((always_inline)) void transpose64(std::uint64_t (*rows)[8]) {
    std::uint64_t mask = 0x00000000FFFFFFFFULL;
    for (std::size_t half = 32; half != 0; half >>= 1, mask ^= mask << half)
        for (std::size_t first = 0; first < 64; first += 2 * half)
            for (std::size_t k = first; k < first + half; ++k)
                for (std::size_t lane = 0; lane < 8; ++lane) {
                    const std::uint64_t swap = (rows[k][lane] ^ (rows[k + half][lane] >> half)) & mask;
                    rows[k][lane] ^= swap;
                    rows[k + half][lane] ^= swap << half;
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

// Adds to total[i] the sums of the columns, and to gram[i, j], j >= i, their inner products, times the factor.
template <class Products>
inline __attribute__((always_inline)) void add_products(const Columns &columns, double factor, double *gram,
                                                        double *total, Products products) {
    const std::size_t n_bits = columns.n_bits, n_words = columns.n_words;
    for (std::size_t i = 0; i < n_bits; ++i) {
        std::int64_t some = 0, more = 0;
        for (std::size_t word = i * n_words; word < (i + 1) * n_words; ++word) {
            some += std::popcount(columns.nonzero[word]);
            more += std::popcount(columns.nonzero[word] & columns.turned[word]);
        }
        total[i] += factor * static_cast<double>(2 * more - some);
    }
    for (std::size_t i = 0; i < n_bits; i += 4)
        for (std::size_t j = i; j < n_bits; j += 2) {
            // At the end a column stands in for those that there are none of.
            const std::size_t last = n_bits - 1;
            const std::size_t left[4] = {i, std::min(i + 1, last), std::min(i + 2, last), std::min(i + 3, last)};
            const std::size_t right[2] = {j, std::min(j + 1, last)};
            std::int64_t found[8];
            products(columns, left, right, found);
            const bool whole = j >= i + 3 && j < last;
            for (std::size_t pair = 0; pair < 8; ++pair) {
                const std::size_t row = i + pair / 2, column = j + pair % 2;
                if (whole || (row <= column && column < n_bits))
                    gram[row * n_bits + column] += factor * static_cast<double>(found[pair]);
            }
        }
}

template <class Products>
inline __attribute__((always_inline)) void add_gram_with(const PackedRows &rows, const std::int8_t *signs,
                                                         double factor, double *gram, double *total,
                                                         Products products) {
    const std::size_t n_bytes = (rows.n_bits + 7) / 8, n_bits = rows.n_bits;
    const auto n_chosen = rows.n_rows - static_cast<std::size_t>(std::count(signs, signs + rows.n_rows, 0));
    // Three arrays of columns, written whole before they are read.
    const std::size_t size = n_bits * (std::min((n_chosen + 511) / 512 * 512, strip) / 64);
    const auto columns = std::make_unique_for_overwrite<std::uint64_t[]>(3 * size);
    std::uint64_t *nonzero = columns.get(), *positive = nonzero + size, *turned = positive + size;
    std::vector<std::size_t> chosen;
    chosen.reserve(std::min(n_chosen, strip));
    for (std::size_t next = 0; next < rows.n_rows;) {
        chosen.clear();
        for (; next < rows.n_rows && chosen.size() < strip; ++next)
            if (signs[next] != 0) chosen.push_back(next);
        if (chosen.empty()) break;
        // Words of zeros to a full vector: a rest done word by word would cost as much as the vectors.
        const std::size_t n_words = (chosen.size() + 511) / 512 * 8;
        for (std::size_t first = 0; first < chosen.size(); first += 512) {
            const std::size_t n_here = std::min<std::size_t>(512, chosen.size() - first);
            std::uint64_t subtracted[8] = {};
            for (std::size_t i = 0; i < n_here; ++i)
                subtracted[i / 64] |= std::uint64_t{signs[chosen[first + i]] < 0} << (63 - i % 64);
            for (std::size_t bit = 0; bit < n_bits; bit += 64) {
                alignas(64) std::uint64_t some[64][8] = {}, more[64][8] = {};
                for (std::size_t i = 0; i < n_here; ++i) {
                    const std::size_t where = chosen[first + i] * n_bytes + bit / 8;
                    const std::uint64_t plus = big_endian(rows.plus + where, n_bytes - bit / 8);
                    const std::uint64_t minus = big_endian(rows.minus + where, n_bytes - bit / 8);
                    some[i % 64][i / 64] = plus ^ minus;
                    more[i % 64][i / 64] = plus & ~minus;
                }
                transpose64(some);
                transpose64(more);
                for (std::size_t column = 0; column < std::min<std::size_t>(64, n_bits - bit); ++column)
                    for (std::size_t lane = 0; lane < 8; ++lane) {
                        const std::size_t where = (bit + column) * n_words + first / 64 + lane;
                        nonzero[where] = some[column][lane];
                        positive[where] = more[column][lane];
                        turned[where] = more[column][lane] ^ subtracted[lane];
                    }
            }
        }
        add_products({nonzero, positive, turned, n_bits, n_words}, factor, gram, total, products);
    }
    // Mirrored in squares, which stay in the cache.
    constexpr std::size_t side = 16;
    for (std::size_t top = 0; top < n_bits; top += side)
        for (std::size_t from = 0; from <= top; from += side)
            for (std::size_t i = top; i < std::min(top + side, n_bits); ++i)
                for (std::size_t j = from; j < std::min(from + side, i); ++j) gram[i * n_bits + j] = gram[j * n_bits + i];
}

// Counting bits is most of the work: the same lines, compiled also for processors that have an instruction for it.
constexpr auto plain = [](auto &&...given) __attribute__((always_inline)) { products_plain(given...); };
#if defined(__x86_64__)
__attribute__((target("popcnt,avx512f,avx512vpopcntdq"))) void add_gram_avx512(const PackedRows &rows,
                                                                              const std::int8_t *signs, double factor,
                                                                              double *gram, double *total) {
    add_gram_with(rows, signs, factor, gram, total, products_avx512);
}

__attribute__((target("popcnt"))) void add_gram_popcnt(const PackedRows &rows, const std::int8_t *signs,
                                                       double factor, double *gram, double *total) {
    add_gram_with(rows, signs, factor, gram, total, plain);
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

void add_gram(const PackedRows &rows, const std::int8_t *signs, double factor, double *gram, double *total) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512vpopcntdq")) return add_gram_avx512(rows, signs, factor, gram, total);
    if (__builtin_cpu_supports("popcnt")) return add_gram_popcnt(rows, signs, factor, gram, total);
#endif
    add_gram_with(rows, signs, factor, gram, total, plain);
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
