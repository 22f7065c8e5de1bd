#include "query.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "distances.hpp"

namespace bitrank {
namespace {

// Bounds ignore weights smaller than this share of the heaviest, and no reach is smaller: sums never underflow.
constexpr float smallest = 1e-30f;

void round_down(const std::vector<float> &weights, float scale, float cap, std::uint8_t *out) {
    for (std::size_t i = 0; i < weights.size(); ++i)
        out[i] = static_cast<std::uint8_t>(static_cast<int>(std::min(weights[i] * scale, cap)));
}

// Whether 0, 1, ..., n units are float32 numbers, so that no sum of units is rounded.
bool multiples_are_exact(float unit, std::size_t n) {
    int exponent;
    const auto digits = static_cast<std::uint32_t>(std::ldexp(std::frexp(unit, &exponent), 24));
    return std::countr_zero(digits) >= static_cast<int>(std::bit_width(n));
}

}  // namespace

Query::Query(const std::uint8_t *code, const float *weights, Order order)
    : order_(order),
      n_bytes_(order.n_bytes()),
      weights_(weights),
      // A sum of m float32 terms has a relative error below m * 2^-24 = m * 6e-8. A distance sums n_bytes + 8 terms, a
      // bound 2 * n_bytes + 4, and quantising multiplies twice: this exceeds their total.
      slack_(1 + 1e-6f * static_cast<float>(n_bytes_ + 16)),
      code_(n_bytes_, 0),
      free_(n_bytes_, 0),
      row_weights_(n_bytes_ * 32),
      block_weights_(n_bytes_ * 32, 0),
      row_tables_(n_bytes_ * 32),
      block_tables_(n_bytes_ * 32),
      difference_(n_bytes_) {
    unit_ = *std::max_element(weights, weights + order.n_bits);
    even_ = std::all_of(weights, weights + order.n_bits, [&](float w) { return w == 0 || w == unit_; });
    if (unit_ == 0) unit_ = 1;
    counts_ = even_ && multiples_are_exact(unit_, order.n_bits);
    for (std::size_t i = 0; i < order.n_bits; ++i) {
        const std::size_t bit = order.bits[i];
        if (code[bit / 8] >> (7 - bit % 8) & 1) code_[i / 8] |= static_cast<std::uint8_t>(0x80 >> i % 8);
        if (weights[bit] == 0) free_[i / 8] |= static_cast<std::uint8_t>(0x80 >> i % 8);
        const float weight = weights[bit] / unit_;
        if (weight < smallest) continue;
        float *table = &block_weights_[i / 4 * 16];
        for (std::size_t value = 0; value < 16; ++value)
            if (value >> (3 - i % 4) & 1) table[value] += weight;
    }
    for (std::size_t half = 0; half < 2 * n_bytes_; ++half) {
        const std::size_t query_half = half % 2 ? code_[half / 2] & 15 : code_[half / 2] >> 4;
        for (std::size_t value = 0; value < 16; ++value)
            row_weights_[half * 16 + value] = block_weights_[half * 16 + (value ^ query_half)];
        heaviest_half_ = std::max(heaviest_half_, block_weights_[half * 16 + 15]);
    }
    if (short_code() && !counts_) fill_short_tables();
}

float Query::bound(const std::uint8_t *value, const std::uint8_t *agree, std::size_t stride) const {
    float sum = 0;
    for (std::size_t byte = 0; byte < n_bytes_; ++byte) {
        const unsigned difference = (value[byte * stride] ^ code_[byte]) & agree[byte * stride];
        sum += block_weights_[byte * 32 + (difference >> 4)] + block_weights_[byte * 32 + 16 + (difference & 15)];
    }
    return sum;
}

float Query::reach(float limit) const {
    const float reach = std::max(limit / unit_ * slack_, smallest);
    return even_ && reach < std::numeric_limits<float>::infinity() ? std::floor(reach) : reach;
}

Tables Query::tables(float reach) {
    // Rounding costs about 1 %: a smaller gain is not worth new tables.
    if (quantised_reach_ < 0 || reach < (even_ ? quantised_reach_ : 0.99f * quantised_reach_)) quantise(reach);
    return {n_bytes_, row_tables_.data(), block_tables_.data(), code_.data(), quantised_limit_};
}

void Query::quantise(float reach) {
    quantised_reach_ = reach;
    reach = std::min(reach, static_cast<float>(order_.n_bits));  // no bound is larger
    float scale, limit, cap;
    if (short_code()) {
        cap = 255;
        scale = even_ ? std::floor(254 / std::max(reach, 1.0f)) : 254 / std::max(reach, smallest);
        limit = even_ ? reach * scale : 254;
    } else {
        cap = std::min(127.0f, std::floor(65534.0f / static_cast<float>(2 * n_bytes_)));
        const float heaviest = std::clamp(heaviest_half_, smallest, std::max(reach, smallest));
        scale = even_ ? std::floor(cap / 4) : (cap - 1) / heaviest;
        limit = std::min(std::floor(reach * scale), 65535.0f);
    }
    quantised_limit_ = static_cast<std::uint16_t>(limit);
    round_down(row_weights_, scale, cap, row_tables_.data());
    round_down(block_weights_, scale, cap, block_tables_.data());
}

float Query::row_bound(const std::uint8_t *row, std::size_t stride) const {
    float sum = 0;
    for (std::size_t byte = 0; byte < n_bytes_; ++byte) {
        const unsigned value = row[byte * stride];
        sum += row_weights_[byte * 32 + (value >> 4)] + row_weights_[byte * 32 + 16 + (value & 15)];
    }
    return sum;
}

float Query::distance(const std::uint8_t *row, std::size_t stride) {
    return distance_from_bound(counts_ ? row_bound(row, stride) : 0, row, stride);
}

float Query::distance_from_bound(float bound, const std::uint8_t *row, std::size_t stride) {
    if (counts_) return bound * unit_;
    return short_code() ? short_distance(row, stride) : long_distance(row, stride);
}

float Query::short_distance(const std::uint8_t *row, std::size_t stride) const {
    std::uint64_t words[2] = {0, 0};
    for (std::size_t byte = 0; byte < n_bytes_; ++byte) {
        const std::uint64_t *bits = &scattered_[(byte * 256 + (row[byte * stride] ^ code_[byte])) * n_words_];
        for (std::size_t w = 0; w < n_words_; ++w) words[w] |= bits[w];
    }
    float sum = 0;
    for (std::size_t byte = 0; byte < n_bytes_; ++byte)
        sum += byte_weights_[byte * 256 + (words[byte / 8] >> (byte % 8 * 8) & 255)];
    return sum;
}

float Query::long_distance(const std::uint8_t *row, std::size_t stride) {
    std::fill(difference_.begin(), difference_.end(), 0);
    for (std::size_t byte = 0; byte < n_bytes_; ++byte) {
        unsigned left = row[byte * stride] ^ code_[byte];
        while (left) {
            const std::size_t bit = order_.bits[byte * 8 + 7 - static_cast<std::size_t>(std::countr_zero(left))];
            difference_[bit / 8] |= static_cast<std::uint8_t>(0x80 >> bit % 8);
            left &= left - 1;
        }
    }
    float sum = 0;
    for (std::size_t byte = 0; byte < n_bytes_; ++byte) {
        unsigned left = difference_[byte];
        float byte_sum = 0;
        while (left) {
            const int bit = std::countl_zero(static_cast<std::uint8_t>(left));
            byte_sum += weights_[byte * 8 + static_cast<std::size_t>(bit)];
            left &= ~(0x80u >> bit);
        }
        sum += byte_sum;
    }
    return sum;
}

// Scatter every value of every permuted byte to the caller's bits, and weigh every value of the caller's bytes.
void Query::fill_short_tables() {
    n_words_ = n_bytes_ <= 8 ? 1 : 2;
    scattered_.assign(n_bytes_ * 256 * n_words_, 0);
    byte_weights_.resize(n_bytes_ * 256);
    byte_tables(weights_, order_.n_bits, byte_weights_.data());
    for (std::size_t i = 0; i < order_.n_bits; ++i) {
        const std::size_t bit = order_.bits[i];
        std::uint64_t *words = &scattered_[i / 8 * 256 * n_words_ + bit / 64];
        const std::size_t mask = 0x80 >> i % 8;
        const std::uint64_t target = std::uint64_t{0x80u >> bit % 8} << (bit / 8 % 8 * 8);
        // Set it in the values whose lowest bit it is; the loop below adds their higher bits.
        for (std::size_t value = mask; value < 256; value += 2 * mask) words[value * n_words_] |= target;
    }
    for (std::size_t byte = 0; byte < n_bytes_; ++byte)
        for (std::size_t value = 1; value < 256; ++value)
            for (std::size_t w = 0; w < n_words_; ++w)
                scattered_[(byte * 256 + value) * n_words_ + w] |=
                    scattered_[(byte * 256 + (value & (value - 1))) * n_words_ + w];
}

}  // namespace bitrank
