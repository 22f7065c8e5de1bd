// The loops of gram.hpp, included by the file of each instruction set. Everything is in an unnamed namespace and calls
// nothing from the standard library: code compiled for one instruction set must not be picked by the linker for another.
//
// Products::of(columns, left, right, out): the inner products of four columns with two others, out[2 * l + r].
#pragma once

#include <bit>

#include "gram.hpp"

namespace bitrank {
namespace {

constexpr std::size_t smaller(std::size_t a, std::size_t b) { return a < b ? a : b; }

inline std::int64_t count_bits(std::uint64_t word) { return __builtin_popcountll(word); }

// Inner products word by word: an entry of the product is nonzero where both columns are, and -1 where signs differ.
struct PlainProducts {
    static void of(const Columns &columns, const std::size_t *left, const std::size_t *right, std::int64_t *out) {
        for (std::size_t pair = 0; pair < 8; ++pair) {
            const std::size_t a = left[pair / 2] * columns.n_words, b = right[pair % 2] * columns.n_words;
            std::int64_t n_common = 0, n_opposite = 0;
            for (std::size_t word = 0; word < columns.n_words; ++word) {
                const std::uint64_t common = columns.nonzero[a + word] & columns.nonzero[b + word];
                n_common += count_bits(common);
                n_opposite += count_bits(common & (columns.flipped[a + word] ^ columns.positive[b + word]));
            }
            out[pair] = n_common - 2 * n_opposite;
        }
    }
};

template <typename Products>
void add_products(const Columns &columns, double factor, double *gram, double *total) {
    const std::size_t n_bits = columns.n_bits, n_words = columns.n_words;
    for (std::size_t i = 0; i < n_bits; ++i) {
        std::int64_t n_nonzero = 0, n_positive = 0;
        for (std::size_t word = i * n_words; word < (i + 1) * n_words; ++word) {
            n_nonzero += count_bits(columns.nonzero[word]);
            n_positive += count_bits(columns.nonzero[word] & columns.flipped[word]);
        }
        total[i] += factor * static_cast<double>(2 * n_positive - n_nonzero);
    }
    for (std::size_t i = 0; i < n_bits; i += 4)
        for (std::size_t j = i; j < n_bits; j += 2) {
            // Past the end, repeat the last column and ignore its products.
            const std::size_t last = n_bits - 1;
            const std::size_t left[4] = {i, smaller(i + 1, last), smaller(i + 2, last), smaller(i + 3, last)};
            const std::size_t right[2] = {j, smaller(j + 1, last)};
            std::int64_t products[8];
            Products::of(columns, left, right, products);
            const bool whole = j >= i + 3 && j < last;
            for (std::size_t pair = 0; pair < 8; ++pair) {
                const std::size_t row = i + pair / 2, column = j + pair % 2;
                if (whole || (row <= column && column < n_bits))
                    gram[row * n_bits + column] += factor * static_cast<double>(products[pair]);
            }
        }
}

// Transpose eight 64 x 64 bit matrices side by side, the most significant bit being the first column (Hacker's Delight,
// 7-3).
inline void transpose64(std::uint64_t (*rows)[8]) {
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

// Read up to eight bytes, the first one most significant.
inline std::uint64_t big_endian(const std::uint8_t *bytes, std::size_t n_bytes) {
    std::uint64_t word = 0;
    if (n_bytes >= 8)
        __builtin_memcpy(&word, bytes, 8);
    else
        __builtin_memcpy(&word, bytes, n_bytes);
    if constexpr (std::endian::native == std::endian::little) word = __builtin_bswap64(word);
    return word;
}

void transpose(const PackedRows &rows, const std::int8_t *signs, const std::size_t *chosen, std::size_t n_chosen,
               const Columns &out) {
    const std::size_t n_bytes = (rows.n_bits + 7) / 8;
    for (std::size_t first = 0; first < n_chosen; first += 512) {
        const std::size_t n_rows = smaller(512, n_chosen - first);
        std::uint64_t subtracted[8] = {};
        for (std::size_t i = 0; i < n_rows; ++i)
            subtracted[i / 64] |= std::uint64_t{signs[chosen[first + i]] < 0} << (63 - i % 64);
        for (std::size_t bit = 0; bit < rows.n_bits; bit += 64) {
            alignas(64) std::uint64_t nonzero[64][8] = {}, positive[64][8] = {};
            for (std::size_t i = 0; i < n_rows; ++i) {
                const std::size_t offset = chosen[first + i] * n_bytes + bit / 8;
                const std::uint64_t plus = big_endian(rows.plus + offset, n_bytes - bit / 8);
                const std::uint64_t minus = big_endian(rows.minus + offset, n_bytes - bit / 8);
                nonzero[i % 64][i / 64] = plus ^ minus;
                positive[i % 64][i / 64] = plus & ~minus;
            }
            transpose64(nonzero);
            transpose64(positive);
            for (std::size_t column = 0; column < smaller(64, rows.n_bits - bit); ++column)
                for (std::size_t lane = 0; lane < 8; ++lane) {
                    const std::size_t word = (bit + column) * out.n_words + first / 64 + lane;
                    out.nonzero[word] = nonzero[column][lane];
                    out.positive[word] = positive[column][lane];
                    out.flipped[word] = positive[column][lane] ^ subtracted[lane];
                }
        }
    }
}

}  // namespace
}  // namespace bitrank
