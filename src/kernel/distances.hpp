// Every distance between a set of query codes and a set of codes, in plain C++: no Python types here.
// The sum runs over the bytes of a code in order, in float32, so that the result is the same on every machine
// and equal codes get bit-for-bit equal distances.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitrank {

// For each byte of a code, the weight of every value of that byte: tables[byte * 256 + value].
// A value's weight is summed from its most significant bit down, the order of np.packbits.
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

// The same from each query to codes of its own: out[q, i] is the distance to codes[rows[q, i]], n_rows of them.
void weighted_hamming_to_rows(const Distances &task, const std::int64_t *rows, std::size_t n_rows,
                              std::size_t n_threads);

// The same without weights: out holds counts, at most 65535 bits.
void hamming(const std::uint8_t *queries, std::size_t n_queries, const std::uint8_t *codes, std::size_t n_codes,
             std::size_t n_bytes, std::uint16_t *out, std::size_t n_threads);

}  // namespace bitrank
