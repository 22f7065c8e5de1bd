// All distances between query codes and codes. Sums run over the bytes of a code in order, in float32: results are the
// same on every machine, and equal codes have equal distances.
#pragma once

#include <cstddef>
#include <cstdint>

#include "scan.hpp"

namespace bitrank {

// Set tables[byte * 256 + value] to the weight of each value of each byte, summed from the most significant bit, the
// first in np.packbits order.
void byte_tables(const float *weights, std::size_t n_bits, float *tables);

struct Distances {
    const std::uint8_t *queries;  // n_queries x n_bytes
    std::size_t n_queries;
    const std::uint8_t *codes;  // n_codes x n_bytes
    std::size_t n_codes;
    std::size_t n_bits;
    const float *weights;       // n_bits, or n_queries x n_bits
    bool weights_per_query;
    float *out;                 // n_queries x n_codes
};

void weighted_hamming(const Distances &task, std::size_t n_threads);

// The same to chosen codes per query: out[q, i] is the distance to codes[rows[q, i]]; rows is n_queries x n_rows.
void weighted_hamming_to_rows(const Distances &task, const std::int64_t *rows, std::size_t n_rows,
                              std::size_t n_threads);

// The same without weights: out holds counts. Codes have at most 65535 bits.
void hamming(const std::uint8_t *queries, std::size_t n_queries, const std::uint8_t *codes, std::size_t n_codes,
             std::size_t n_bytes, std::uint16_t *out, std::size_t n_threads, const Scanner &scanner);

// Codes of reals, one bit per value above zero, and their sizes; n_rows x n_bits. False if a value is not finite, or if
// none is below zero.
bool split_reals(const float *reals, std::size_t n_rows, std::size_t n_bits, std::uint8_t *codes, float *sizes);

// The same of reals that are products of a few finite numbers per row (n_rows x n_numbers) and weights: real b is
// numbers[columns[b]] * weights[b].
void split_products(const float *numbers, std::size_t n_rows, std::size_t n_numbers, const std::int64_t *columns,
                    const float *weights, std::size_t n_bits, std::uint8_t *codes, float *sizes);

}  // namespace bitrank
