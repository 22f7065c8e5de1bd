#include "weighting.hpp"

#include <algorithm>
#include <cmath>

namespace bitrank {
namespace {

// Bounds ignore weights smaller than this share of the heaviest, and no reach is smaller: sums never underflow.
constexpr float smallest = 1e-30f;

// Look-ups are summed in 8 bits as long as the sum of all their weights is below this: few rows differ from the query in
// so many bits that 255 is too small, and a sum that saturates is still a lower bound.
constexpr float largest_part = 320;

// Fill a table of sums: bit i of an index adds weight_of(i).
template <typename WeightOf>
void fill_sums(float *table, std::size_t n_index_bits, WeightOf weight_of) {
    table[0] = 0;
    for (std::size_t i = 0; i < n_index_bits; ++i) {
        const std::size_t n = std::size_t{1} << i;
        const float weight = weight_of(i);
        for (std::size_t value = 0; value < n; ++value) table[n + value] = table[value] + weight;
    }
}

}  // namespace

Weighting::Weighting(const float *given, Order given_order, const Scanner &scanner)
    : order(given_order),
      lookups{order.n_bytes(), scanner.index_bits},
      weights(given, given + order.n_bits),
      positions(order.n_bits),
      places(order.n_bits),
      free(order.n_bytes(), 0),
      unit(*std::max_element(given, given + order.n_bits)),
      even(std::all_of(given, given + order.n_bits, [&](float w) { return w == 0 || w == unit; })),
      // A sum of m float32 terms has a relative error below m * 2^-24 = m * 6e-8. A distance sums n_bytes + 8 terms, a
      // bound 2 * n_bytes + 4, and quantising multiplies twice: this exceeds their total.
      slack(1 + 1e-6f * static_cast<float>(order.n_bytes() + 16)),
      row_weights(lookups.n_tables() * lookups.n_entries()),
      half_weights(order.n_bytes() * 32),
      prefix(lookups.n_steps() + 1, 0),
      scanner_(&scanner),
      bits_(order.bits, order.bits + order.n_bits),
      step_weights_(lookups.n_steps(), 0) {
    order.bits = bits_.data();
    if (unit == 0) unit = 1;
    std::vector<float> permuted(std::max(order.n_bytes(), lookups.n_steps() * lookups.step_bytes()) * 8, 0);
    for (std::size_t i = 0; i < order.n_bits; ++i) {
        positions[bits_[i]] = static_cast<std::uint16_t>(i);
        places[bits_[i]] = {static_cast<std::uint32_t>(i / 8 * rows_together), 0x80u >> i % 8};
        if (weights[bits_[i]] == 0) free[i / 8] |= static_cast<std::uint8_t>(0x80 >> i % 8);
        const float weight = weights[bits_[i]] / unit;
        permuted[i] = weight < smallest ? 0 : weight;
    }
    for (const float weight : permuted) deviation_ += weight * weight / 4;
    deviation_ = std::sqrt(deviation_);
    for (std::size_t half = 0; half < 2 * order.n_bytes(); ++half)
        fill_sums(&half_weights[half * 16], 4, [&](std::size_t i) { return permuted[half * 4 + 3 - i]; });
    const std::size_t n_entries = lookups.n_entries();
    for (std::size_t table = 0; table < lookups.n_tables(); ++table) {
        fill_sums(&row_weights[table * n_entries], lookups.index_bits,
                  [&](std::size_t i) { return permuted[lookups.bit(table, i)]; });
        const float heaviest = row_weights[(table + 1) * n_entries - 1];
        heaviest_entry_ = std::max(heaviest_entry_, heaviest);
        if (table % 2) heaviest_pair_ = std::max(heaviest_pair_, heaviest + row_weights[table * n_entries - 1]);
        step_weights_[table / Lookups::per_step] += heaviest;
    }
    for (std::size_t step = 0; step < step_weights_.size(); ++step)
        prefix[step + 1] = prefix[step] + step_weights_[step];
    if (!short_code()) quantise(scale(static_cast<float>(order.n_bits)), nominal);
}

float Weighting::scale(float reach) const {
    reach = std::max(reach, smallest);
    if (short_code()) return even ? std::floor(254 / std::max(reach, 1.0f)) : 254 / reach;
    if (even) return 1;
    // Rounding down loses half a unit per look-up. More than a third of the deviation of random distances, or 2 % of the
    // reach, would let too many rows survive; finer units would be widened more often. A weight beyond the reach need not
    // be exact, and the sum of all weights fits 16 bits.
    const float largest_loss = std::max(std::min(0.3f * deviation_, 0.02f * reach), smallest);
    return std::min({0.5f * static_cast<float>(lookups.n_tables()) / largest_loss,
                     255 / std::clamp(heaviest_entry_, smallest, reach),
                     largest_part / std::clamp(heaviest_pair_, smallest, reach),
                     65535 / std::max(prefix.back(), smallest)});
}

void Weighting::quantise(float scale, Quantised &out) const {
    out.scale = scale;
    out.rows.resize(row_weights.size());
    out.blocks.resize(half_weights.size());
    scanner_->round_down(row_weights.data(), row_weights.size(), scale, out.rows.data());
    scanner_->round_down(half_weights.data(), half_weights.size(), scale, out.blocks.data());
    if (short_code()) return;
    const std::size_t n_steps = step_weights_.size();
    const auto sum = [&](std::size_t step) { return scale * (step < n_steps ? step_weights_[step] : 0); };
    std::size_t &fine = out.fine, &middle = out.middle;
    for (fine = n_steps; fine > 0 && sum(fine - 1) <= largest_part; --fine) {}
    for (middle = n_steps; middle > fine && sum(middle - 1) + sum(middle) <= largest_part; --middle) {}
}

}  // namespace bitrank
