// Weights prepared for one order of bits and one path, once for all queries that share them.
#pragma once

#include <vector>

#include "layout.hpp"

namespace bitrank {

// Tables of a weighting, rounded down to whole units of 1 / scale; indexed by differences.
struct Quantised {
    float scale = 0;
    std::vector<std::uint8_t> rows, blocks;  // see Tables
    std::size_t fine = 0, middle = 0;
};

class Weighting {
public:
    Weighting(const float *weights, Order order, const Scanner &scanner);
    Weighting(const Weighting &) = delete;  // `order` points into it

    // Whether bounds are summed in 8 bits; longer codes would lose too much by rounding down.
    bool short_code() const { return order.n_bytes() <= 16; }

    // The scale of tables for bounds within the reach.
    float scale(float reach) const;
    void quantise(float scale, Quantised &out) const;

    Order order;
    Lookups lookups;
    std::vector<float> weights;            // in the caller's order
    std::vector<std::uint16_t> positions;  // of the caller's bits in the order
    std::vector<BitPlace> places;          // of the same
    std::vector<std::uint8_t> free;        // the bits of weight zero, permuted
    float unit;                            // the heaviest weight, the unit of bounds
    bool even;                             // every weight is zero or one unit: bounds are integers
    float slack;                           // what rounding may add to a bound
    std::vector<float> row_weights, half_weights;  // as in Tables, before rounding down
    std::vector<float> prefix;             // per step, the weight of all steps before it
    Quantised nominal;                     // for long codes: tables for any reach beyond the heaviest entries

private:
    const Scanner *scanner_;
    std::vector<std::uint16_t> bits_;
    std::vector<float> step_weights_;
    float heaviest_entry_ = 0, heaviest_pair_ = 0;
    float deviation_ = 0;  // standard deviation of the distances of random codes
};

}  // namespace bitrank
