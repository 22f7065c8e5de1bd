#include "distances.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "parallel.hpp"

namespace bitrank {
namespace {

// Codes per strip, which stays in the second-level cache for all queries of a thread.
constexpr std::size_t strip = 4096;

// Call work(first, last) once per thread, on consecutive ranges of [0, n).
template <typename Work>
void split(std::size_t n, std::size_t n_threads, Work work) {
    n_threads = std::max<std::size_t>(1, std::min(n_threads, n));
    parallel_for(n_threads, n_threads,
                 [&](std::size_t t) { work(n * t / n_threads, n * (t + 1) / n_threads); });
}

}  // namespace

void byte_tables(const float *weights, std::size_t n_bits, float *tables) {
    const std::size_t n_bytes = (n_bits + 7) / 8;
    for (std::size_t byte = 0; byte < n_bytes; ++byte) {
        float *table = tables + byte * 256;
        const std::size_t n_used = std::min<std::size_t>(8, n_bits - byte * 8);
        // Add the lowest set bit of a value to the entry of its higher bits.
        table[0] = 0.0f;
        for (std::size_t value = 1; value < 256; ++value) {
            const auto bit = static_cast<std::size_t>(7 - std::countr_zero(value));
            table[value] = table[value & (value - 1)] + (bit < n_used ? weights[byte * 8 + bit] : 0.0f);
        }
    }
}

namespace {

// Distances from each query q to n_to codes, code_of(q, i) being the row of the i-th.
template <typename CodeOf>
void weighted_hamming_to(const Distances &task, std::size_t n_to, std::size_t n_threads, CodeOf code_of) {
    constexpr std::size_t at_once = 8;
    const std::size_t n_bytes = (task.n_bits + 7) / 8;
    const std::uint8_t *codes = task.codes;
    split(task.n_queries, n_threads, [&](std::size_t first, std::size_t last) {
        std::vector<float> tables(n_bytes * 256);
        for (std::size_t q = first; q < last; ++q) {
            if (q == first || task.weights_per_query)
                byte_tables(task.weights + (task.weights_per_query ? q * task.n_bits : 0), task.n_bits, tables.data());
            const std::uint8_t *query = task.queries + q * n_bytes;
            const float *table = tables.data();
            float *out = task.out + q * n_to;
            // Several codes at a time: their sums are independent, and each keeps its order of additions.
            std::size_t i = 0;
            for (; i + at_once <= n_to; i += at_once) {
                const std::uint8_t *code[at_once];
                float sum[at_once] = {};
                for (std::size_t c = 0; c < at_once; ++c) code[c] = codes + code_of(q, i + c) * n_bytes;
                for (std::size_t byte = 0; byte < n_bytes; ++byte)
                    for (std::size_t c = 0; c < at_once; ++c)
                        sum[c] += table[byte * 256 + (query[byte] ^ code[c][byte])];
                std::copy(sum, sum + at_once, out + i);
            }
            for (; i < n_to; ++i) {
                const std::uint8_t *code = codes + code_of(q, i) * n_bytes;
                float sum = 0.0f;
                for (std::size_t byte = 0; byte < n_bytes; ++byte)
                    sum += table[byte * 256 + (query[byte] ^ code[byte])];
                out[i] = sum;
            }
        }
    });
}

}  // namespace

void weighted_hamming(const Distances &task, std::size_t n_threads) {
    weighted_hamming_to(task, task.n_codes, n_threads, [](std::size_t, std::size_t i) { return i; });
}

void weighted_hamming_to_rows(const Distances &task, const std::int64_t *rows, std::size_t n_rows,
                              std::size_t n_threads) {
    weighted_hamming_to(task, n_rows, n_threads,
                        [&](std::size_t q, std::size_t i) { return static_cast<std::size_t>(rows[q * n_rows + i]); });
}

void hamming(const std::uint8_t *queries, std::size_t n_queries, const std::uint8_t *codes, std::size_t n_codes,
             std::size_t n_bytes, std::uint16_t *out, std::size_t n_threads, const Scanner &scanner) {
    split(n_queries, n_threads, [&](std::size_t first, std::size_t last) {
        for (std::size_t start = 0; start < n_codes; start += strip)
            for (std::size_t q = first; q < last; ++q)
                scanner.hamming(queries + q * n_bytes, codes + start * n_bytes, std::min(strip, n_codes - start), n_bytes,
                                out + q * n_codes + start);
    });
}

bool split_reals(const float *reals, std::size_t n_rows, std::size_t n_bits, std::uint8_t *codes, float *sizes) {
    bool finite = true, any_below = false;
    for (std::size_t row = 0; row < n_rows; ++row)
        for (std::size_t bit = 0; bit < n_bits; bit += 8, ++codes) {
            unsigned byte = 0;
            for (std::size_t i = 0; i < std::min<std::size_t>(8, n_bits - bit); ++i, ++reals, ++sizes) {
                byte |= (*reals > 0 ? 0x80u : 0u) >> i;
                any_below |= *reals < 0;
                *sizes = std::abs(*reals);
                finite &= *sizes <= std::numeric_limits<float>::max();
            }
            *codes = static_cast<std::uint8_t>(byte);
        }
    return finite && any_below;
}

void split_products(const float *numbers, std::size_t n_rows, std::size_t n_numbers, const std::int64_t *columns,
                    const float *weights, std::size_t n_bits, std::uint8_t *codes, float *sizes) {
    for (std::size_t row = 0; row < n_rows; ++row, numbers += n_numbers, sizes += n_bits) {
        for (std::size_t i = 0; i < n_bits; ++i) sizes[i] = numbers[columns[i]] * weights[i];
        const auto ones = [&](std::size_t bit, std::size_t n) {
            int byte = 0;
            for (std::size_t i = 0; i < n; ++i) byte |= std::bit_cast<std::int32_t>(sizes[bit + i]) > 0 ? 0x80 >> i : 0;
            return static_cast<std::uint8_t>(byte);
        };
        std::size_t bit = 0;
        for (; bit + 8 <= n_bits; bit += 8) *codes++ = ones(bit, 8);
        if (bit < n_bits) *codes++ = ones(bit, n_bits - bit);
        for (std::size_t i = 0; i < n_bits; ++i) sizes[i] = std::abs(sizes[i]);
    }
}

}  // namespace bitrank
