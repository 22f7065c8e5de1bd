// One query against one order of bits: its bounds for blocks and rows, and its exact distances.
#pragma once

#include <limits>
#include <vector>

#include "layout.hpp"

namespace bitrank {

class Query {
public:
    Query(const std::uint8_t *code, const float *weights, Order order);

    // Bits without weight, permuted.
    const std::uint8_t *free_bits() const { return free_.data(); }

    // A lower bound of the distance to every row that has the value in the bits that agree, in units of `reach`.
    float bound(const std::uint8_t *value, const std::uint8_t *agree, std::size_t stride) const;

    // No row at this distance or nearer has a bound above it: the limit, plus what rounding may add to a bound.
    float reach(float limit) const;

    // Tables for bounds within `reach`; made anew when the reach has shrunk enough to matter.
    Tables tables(float reach);

    // Bounds fit 8-bit sums for short codes; long ones would lose too much by rounding down.
    bool short_code() const { return n_bytes_ <= 16; }

    // Of the row whose bytes are at row, row + stride, ...
    float row_bound(const std::uint8_t *row, std::size_t stride = lane_count) const;

    // Weights summed in float32 in the order of the caller's bytes: the distance of bitrank.codes.weighted_hamming.
    float distance(const std::uint8_t *row, std::size_t stride = lane_count);

    // The same where the row's bound is known.
    float distance_given(float bound, const std::uint8_t *row, std::size_t stride = lane_count);

private:
    void quantise(float reach);
    void fill_short_tables();
    float short_distance(const std::uint8_t *row, std::size_t stride) const;
    float long_distance(const std::uint8_t *row, std::size_t stride);

    Order order_;
    std::size_t n_bytes_;
    const float *weights_;
    float unit_;    // bounds count in units of the heaviest weight
    bool even_;     // every weight is zero or one unit: bounds are whole numbers
    bool counts_;   // and no sum of units is rounded: a bound of a row is its distance
    float slack_;
    float heaviest_half_ = 0;
    std::vector<std::uint8_t> code_, free_;            // permuted
    std::vector<float> row_weights_, block_weights_;   // as Tables, before rounding down
    std::vector<std::uint8_t> row_tables_, block_tables_, difference_;
    std::size_t n_words_ = 0;
    std::vector<std::uint64_t> homes_;
    std::vector<float> byte_weights_;
    float quantised_reach_ = -1;
    std::uint16_t quantised_limit_ = 0;
};

}  // namespace bitrank
