// A query and its weights: lower bounds for blocks and rows, and exact distances.
#pragma once

#include "weighting.hpp"

namespace bitrank {

class Query {
public:
    // The weighting must outlive the query.
    Query(const std::uint8_t *code, const Weighting &weighting, const Scanner &scanner);

    // The bits of weight zero, permuted.
    const std::uint8_t *free_bits() const { return weighting_->free.data(); }
    bool sums8() const { return weighting_->sums8(); }

    // A lower bound, in the unit of `scaled_limit`, of the distance to every row that has these values in the `agree` bits of its
    // first bytes.
    float bound(const std::uint8_t *value, const std::uint8_t *agree, std::size_t stride, std::size_t n_bytes) const;

    // The limit in the unit of bounds, the heaviest weight, plus what rounding may add to a bound: no row within the limit
    // has a larger one.
    float scaled_limit(float limit) const;

    // Tables for bounds within the scaled limit, rebuilt when it has shrunk enough to matter.
    Tables tables(float scaled_limit);

    // The limit of the tables for a lower scaled limit.
    std::uint16_t row_limit(float scaled_limit) const;

    // Set row i of up to 16 that are scored together; its bytes are at row, row + stride, ...
    void set_row(std::size_t i, const std::uint8_t *row, std::size_t stride = lane_count);

    // The distances of bitrank.codes.weighted_hamming: weights summed in float32, in the order of the caller's bytes.
    void distances(float *out) const;

    // The same of 16 consecutive lanes of a block.
    void distances_of_lanes(const std::uint8_t *lanes, float *out);

    float distance(const std::uint8_t *row, std::size_t stride = lane_count);

private:
    std::uint16_t limit_of(float sum) const;
    void fold(const Quantised &quantised);
    const Quantised &quantised() const { return nominal_ ? weighting_->nominal : quantised_; }

    const Weighting *weighting_;
    const Scanner *scanner_;
    std::size_t n_bytes_;
    std::vector<std::uint8_t> code_;         // permuted
    std::vector<std::uint8_t> indices_;      // of the query's own bits, per table
    AlignedBytes rows_;                      // tables of rows, the query folded in
    std::vector<std::uint32_t> differences_, lane_differences_;  // of the rows that are scored together
    Quantised quantised_;                    // unless those of the weighting do
    bool nominal_ = false;
    float quantised_limit_ = -1;                // scaled
};

}  // namespace bitrank
