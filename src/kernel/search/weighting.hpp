// Weights prepared for one order of bits and one path, once for all queries that share them.
#pragma once

#include <new>
#include <utility>
#include <vector>

#include "layout.hpp"

namespace bitrank {

// Memory that starts at a cache line: a table that straddles two takes twice as long to load.
template <typename T>
struct LineAllocator {
    using value_type = T;
    static constexpr std::align_val_t alignment{64};

    LineAllocator() = default;
    template <typename U>
    LineAllocator(const LineAllocator<U> &) {}
    T *allocate(std::size_t n) { return static_cast<T *>(::operator new(n * sizeof(T), alignment)); }
    // Leave what nobody has written yet as it is.
    template <typename U, typename... Values>
    void construct(U *p, Values &&...values) {
        if constexpr (sizeof...(Values) > 0) ::new (static_cast<void *>(p)) U(std::forward<Values>(values)...);
    }
    void deallocate(T *p, std::size_t) { ::operator delete(p, alignment); }
    bool operator==(const LineAllocator &) const { return true; }
};
using AlignedBytes = std::vector<std::uint8_t, LineAllocator<std::uint8_t>>;

// Tables of a weighting, rounded down to whole units; indexed by differences.
struct Quantised {
    float scale = 0;                                  // see Weighting::scale
    float row_scale = 0, block_scale = 0;             // units of the sums of rows and blocks per unit of bounds
    float rounding = 0;                               // the most that averages add to a sum
    std::vector<std::uint8_t> rows, blocks;           // see Tables
    std::vector<std::uint32_t> factors;
};

// Round weights, by at most half of a power of two for each three bytes, so that sums of 16 bits are exact distances.
void round_to_exact_sums(float *weights, std::size_t n_bits);

class Weighting {
public:
    Weighting(const float *weights, Order order, const Scanner &scanner, bool sums8);
    Weighting(const Weighting &) = delete;  // `order` points into it

    // Whether bounds are summed in 8 bits, in units that suit the limit of a query; else in 16 bits.
    bool sums8() const { return sums8_; }

    // The scale of tables for bounds within the scaled limit: the units of 8-bit sums, or for 16-bit sums the inverse of the
    // heaviest entry that must be exact.
    float scale(float scaled_limit) const;
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
    Quantised nominal;                     // for 16-bit sums: tables for any limit beyond the heaviest entries
    std::size_t exact_steps = 0;           // as in Tables; then nominal tables are for any limit
    float sum_unit = 0;                    // of exact sums

private:
    void quantise_groups(float scale, Quantised &out) const;
    // Find units, powers of two, in which the weights of every step or group are whole numbers and their sums fit, and that
    // of all sums.
    void find_exact_sums();
    void quantise_exactly(Quantised &out) const;

    const Scanner *scanner_;
    bool sums8_;
    std::vector<std::uint16_t> bits_;
    std::vector<float> exact_units_;  // of the steps or groups
    std::vector<float> heaviest_;  // the heaviest entry of the tables of each group
};

}  // namespace bitrank
