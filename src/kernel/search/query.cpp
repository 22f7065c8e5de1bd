#include "query.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "top_k.hpp"

namespace bitrank {
namespace {

// Rounding costs about 1 %: a smaller gain is not worth new tables.
constexpr float worth_new_tables = 0.97f;

std::uint64_t swapped(std::uint64_t word, std::uint64_t mask, int shift) {
    return (word & mask) << shift | (word >> shift & mask);
}

// Set out[value] = table[value ^ query].
void fold_table(const std::uint8_t *table, std::size_t n_entries, unsigned query, std::uint8_t *out) {
    for (std::size_t i = 0; i < n_entries / 8; ++i) {
        std::uint64_t word;
        std::memcpy(&word, table + (i ^ query >> 3) * 8, 8);
        if (query & 1) word = swapped(word, 0x00ff00ff00ff00ffULL, 8);
        if (query & 2) word = swapped(word, 0x0000ffff0000ffffULL, 16);
        if (query & 4) word = swapped(word, 0x00000000ffffffffULL, 32);
        std::memcpy(out + i * 8, &word, 8);
    }
}

}  // namespace

Query::Query(const std::uint8_t *code, const Weighting &weighting, const Scanner &scanner)
    : weighting_(&weighting),
      scanner_(&scanner),
      n_bytes_(weighting.order.n_bytes()),
      code_(n_bytes_, 0),
      indices_(weighting.lookups.n_tables(), 0),
      rows_(weighting.row_weights.size()),
      differences_(n_bytes_ * rows_together, 0),
      lane_differences_(n_bytes_ * rows_together) {
    for (std::size_t byte = 0; byte < n_bytes_; ++byte)
        for (unsigned left = code[byte]; left; left &= left - 1) {
            const std::size_t position =
                weighting.positions[byte * 8 + 7 - static_cast<std::size_t>(std::countr_zero(left))];
            code_[position / 8] |= static_cast<std::uint8_t>(0x80 >> position % 8);
        }
    if (weighting.lookups.index_bits == 4) {
        for (std::size_t half = 0; half < 2 * n_bytes_; ++half)
            indices_[half] = half % 2 ? code_[half / 2] & 15 : code_[half / 2] >> 4;
    } else {
        for (std::size_t byte = 0; byte < n_bytes_; ++byte) {
            indices_[byte / 3 * 4 + byte % 3] = code_[byte] & 63;
            indices_[byte / 3 * 4 + 3] |= static_cast<std::uint8_t>(code_[byte] >> 6 << byte % 3 * 2);
        }
    }
}

float Query::bound(const std::uint8_t *value, const std::uint8_t *agree, std::size_t stride, std::size_t n_bytes) const {
    const float *weights = weighting_->half_weights.data();
    float sum = 0;
    for (std::size_t byte = 0; byte < n_bytes; ++byte) {
        if (!agree[byte * stride]) continue;
        const unsigned difference = (value[byte * stride] ^ code_[byte]) & agree[byte * stride];
        sum += weights[byte * 32 + (difference >> 4)] + weights[byte * 32 + 16 + (difference & 15)];
    }
    return sum;
}

float Query::scaled_limit(float limit) const {
    const float scaled = std::max(limit / weighting_->unit * weighting_->slack, 1e-30f);
    return weighting_->even && scaled < infinity ? std::floor(scaled) : scaled;
}

Tables Query::tables(float scaled_limit) {
    scaled_limit = std::min(scaled_limit, static_cast<float>(weighting_->order.n_bits));  // no bound is larger
    if (quantised_limit_ < 0 || scaled_limit < worth_new_tables * quantised_limit_) {
        const float scale = weighting_->scale(scaled_limit);
        const float current = quantised_limit_ < 0 ? 0 : nominal_ ? weighting_->nominal.scale : quantised_.scale;
        if (scale > (sums8() ? current : 2 * current)) {
            nominal_ = !sums8() && (weighting_->exact_steps || scale < 2 * weighting_->nominal.scale);
            if (!nominal_) weighting_->quantise(scale, quantised_);
            fold(nominal_ ? weighting_->nominal : quantised_);
        }
        quantised_limit_ = scaled_limit;
    }
    const std::vector<float> &prefix = weighting_->prefix;
    // Random codes differ in half of the weight.
    const auto test_from = std::lower_bound(prefix.begin(), prefix.end(), 2 * scaled_limit) - prefix.begin();
    return {.n_bytes = n_bytes_,
            .rows = rows_.data(),
            .blocks = quantised().blocks.data(),
            .query = code_.data(),
            .limit = row_limit(scaled_limit),
            .block_limit = limit_of(scaled_limit * quantised().block_scale),
            .factors = quantised().factors.data(),
            .test_from = static_cast<std::size_t>(test_from),
            .exact_steps = weighting_->exact_steps};
}

std::uint16_t Query::limit_of(float sum) const {
    return static_cast<std::uint16_t>(std::min(std::floor(sum), sums8() ? 254.0f : 65535.0f));
}

std::uint16_t Query::row_limit(float scaled_limit) const {
    return limit_of(scaled_limit * quantised().row_scale + quantised().rounding);
}

void Query::fold(const Quantised &quantised) {
    const std::size_t n_entries = weighting_->lookups.n_entries();
    for (std::size_t table = 0; table < indices_.size(); ++table)
        fold_table(&quantised.rows[table * n_entries], n_entries, indices_[table], &rows_[table * n_entries]);
}

void Query::set_row(std::size_t i, const std::uint8_t *row, std::size_t stride) {
    scanner_->set_row(row, stride, code_.data(), n_bytes_, i, differences_.data());
}

void Query::distances(float *out) const {
    scanner_->distances(differences_.data(), weighting_->places.data(), weighting_->weights.data(),
                        weighting_->order.n_bits, out);
}

void Query::distances_of_lanes(const std::uint8_t *lanes, float *out) {
    scanner_->differences(lanes, code_.data(), n_bytes_, lane_differences_.data());
    scanner_->distances(lane_differences_.data(), weighting_->places.data(), weighting_->weights.data(),
                        weighting_->order.n_bits, out);
}

float Query::distance(const std::uint8_t *row, std::size_t stride) {
    float out[rows_together];
    set_row(0, row, stride);
    distances(out);
    return out[0];
}

}  // namespace bitrank
