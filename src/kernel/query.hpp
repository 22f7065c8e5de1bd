// A query prepared for one order of bits: lower bounds for blocks and rows, and exact distances.
#pragma once

#include <limits>
#include <vector>

#include "layout.hpp"

namespace bitrank {

class Query {
public:
    Query(const std::uint8_t *code, const float *weights, Order order);

    // The bits of weight zero, permuted.
    const std::uint8_t *free_bits() const { return free_.data(); }

    // A lower bound, in the unit of `reach`, of the distance to every row that has these values in the `agree` bits.
    float bound(const std::uint8_t *value, const std::uint8_t *agree, std::size_t stride) const;

    // The largest bound of any row within the limit: the limit itself, plus what rounding may add to a bound.
    float reach(float limit) const;

    // Tables for bounds within `reach`, rebuilt when the reach has shrunk enough to matter.
    Tables tables(float reach);

    // Whether bounds are summed in 8 bits; longer codes would lose too much by rounding down.
    bool short_code() const { return n_bytes_ <= 16; }

    // The bound of the row whose bytes are at row, row + stride, ...
    float row_bound(const std::uint8_t *row, std::size_t stride = lane_count) const;

    // The distance of bitrank.codes.weighted_hamming: weights summed in float32, in the order of the caller's bytes.
    float distance(const std::uint8_t *row, std::size_t stride = lane_count);

    // The same from a known bound of the row.
    float distance_from_bound(float bound, const std::uint8_t *row, std::size_t stride = lane_count);

private:
    void quantise(float reach);
    void fill_short_tables();
    float short_distance(const std::uint8_t *row, std::size_t stride) const;
    float long_distance(const std::uint8_t *row, std::size_t stride);

    Order order_;
    std::size_t n_bytes_;
    const float *weights_;
    float unit_;   // the heaviest weight, the unit of bounds
    bool even_;    // every weight is zero or one unit: bounds are integers
    bool counts_;  // in addition no sum of units is rounded: the bound of a row is its distance
    float slack_;
    float heaviest_half_ = 0;
    std::vector<std::uint8_t> code_, free_;           // permuted
    std::vector<float> row_weights_, block_weights_;  // as in Tables, before rounding down
    std::vector<std::uint8_t> row_tables_, block_tables_, difference_;
    std::size_t n_words_ = 0;
    std::vector<std::uint64_t> scattered_;  // per byte and value, its bits in the caller's order
    std::vector<float> byte_weights_;
    float quantised_reach_ = -1;
    std::uint16_t quantised_limit_ = 0;
};

}  // namespace bitrank
