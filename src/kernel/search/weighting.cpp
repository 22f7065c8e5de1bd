#include "weighting.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace bitrank {
namespace {

// Bounds ignore weights smaller than this share of the heaviest, and no scaled limit is smaller: sums never underflow.
constexpr float smallest = 1e-30f;

// Sums of all weights in 16 bits, less than 65535 since averages are rounded up.
constexpr float largest_sum = 60000;

constexpr float largest_factor = 127, tables_per_group = steps_per_group * Lookups::per_step;

// The greatest power of two that divides a weight: its exponent.
int lowest_bit(float weight) {
    const auto bits = std::bit_cast<std::uint32_t>(weight);
    const auto exponent = static_cast<int>(bits >> 23) - 127 - 23;
    return exponent + std::countr_zero((bits & 0x7fffffu) | 0x800000u);
}

constexpr int no_bit = 1000, most_between_units = 6;  // factors of 64 fit a signed byte

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

void round_to_exact_sums(float *weights, std::size_t n_bits) {
    // Bits of three bytes are a step of the paths with tables of 64 entries; rounding up may add half a unit for each.
    constexpr std::size_t n_together = 24;
    constexpr double most_units = 255 - n_together / 2, most_units_in_all = 50000;
    std::vector<double> sums((n_bits + n_together - 1) / n_together, 0);
    for (std::size_t i = 0; i < n_bits; ++i) sums[i / n_together] += weights[i];
    const double total = std::accumulate(sums.begin(), sums.end(), 0.0), heaviest = *std::max_element(sums.begin(), sums.end());
    if (!(total > std::ldexp(1.0, -60) && total < std::ldexp(1.0, 60))) return;
    const auto unit_of = [](double sum, double units) { return std::exp2(std::ceil(std::log2(sum / units))); };
    const double least = std::max(unit_of(total, most_units_in_all), std::ldexp(unit_of(heaviest, most_units), -most_between_units));
    for (std::size_t i = 0; i < sums.size(); ++i) {
        const auto unit = static_cast<float>(sums[i] > 0 ? std::max(least, unit_of(sums[i], most_units)) : least);
        for (std::size_t bit = i * n_together; bit < std::min(n_bits, (i + 1) * n_together); ++bit)
            weights[bit] = std::nearbyint(weights[bit] / unit) * unit;
    }
}

Weighting::Weighting(const float *given, Order given_order, const Scanner &scanner, bool sums8)
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
      sums8_(sums8),
      bits_(order.bits, order.bits + order.n_bits),
      heaviest_(lookups.n_groups(), smallest) {
    order.bits = bits_.data();
    if (unit == 0) unit = 1;
    if (!sums8_) find_exact_sums();
    if (exact_steps && !even) unit = std::exp2(std::ceil(std::log2(unit)));  // sums in it are exact
    std::vector<float> permuted(std::max(order.n_bytes(), lookups.n_steps() * lookups.step_bytes()) * 8, 0);
    for (std::size_t i = 0; i < order.n_bits; ++i) {
        positions[bits_[i]] = static_cast<std::uint16_t>(i);
        places[bits_[i]] = {static_cast<std::uint32_t>(i / 8 * rows_together), (0x80u >> i % 8) * 0x01010101u};
        if (weights[bits_[i]] == 0) free[i / 8] |= static_cast<std::uint8_t>(0x80 >> i % 8);
        const float weight = weights[bits_[i]] / unit;
        permuted[i] = weight < smallest ? 0 : weight;
    }
    for (std::size_t half = 0; half < 2 * order.n_bytes(); ++half)
        fill_sums(&half_weights[half * 16], 4, [&](std::size_t i) { return permuted[half * 4 + 3 - i]; });
    const std::size_t n_entries = lookups.n_entries();
    for (std::size_t table = 0; table < lookups.n_tables(); ++table) {
        fill_sums(&row_weights[table * n_entries], lookups.index_bits,
                  [&](std::size_t i) { return permuted[lookups.bit(table, i)]; });
        const float heaviest = row_weights[(table + 1) * n_entries - 1];
        const std::size_t step = table / Lookups::per_step;
        heaviest_[step / steps_per_group] = std::max(heaviest_[step / steps_per_group], heaviest);
        prefix[step + 1] += heaviest;
    }
    std::partial_sum(prefix.begin(), prefix.end(), prefix.begin());
    if (!sums8_) quantise(scale(static_cast<float>(order.n_bits)), nominal);
}

void Weighting::find_exact_sums() {
    struct Part {
        int lowest = no_bit;
        double sum = 0;
    };
    const std::size_t step_bits = lookups.step_bytes() * 8;
    std::vector<Part> parts(lookups.n_steps());
    for (std::size_t i = 0; i < order.n_bits; ++i) {
        const float weight = weights[bits_[i]];
        Part &part = parts[i / step_bits];
        if (weight > 0) part.lowest = std::min(part.lowest, lowest_bit(weight));
        part.sum += weight;
    }
    int least = no_bit;
    double total = 0;
    for (const Part &part : parts) {
        least = std::min(least, part.lowest);
        total += part.sum;
    }
    if (least < -100 || least > 100 || total > std::ldexp(largest_sum, least)) return;
    const auto try_parts = [&](std::size_t n_steps) {
        exact_units_.clear();
        for (const Part &part : parts) {
            exact_units_.push_back(std::ldexp(1.0f, std::min(part.lowest, least + most_between_units)));
            if (part.sum > 255.0 * double{exact_units_.back()}) return false;
        }
        exact_steps = n_steps;
        sum_unit = std::ldexp(1.0f, least);
        return true;
    };
    if (total <= 255 * std::ldexp(1.0, least) * static_cast<double>(lookups.n_groups())) {  // the groups may do
        const std::vector<Part> steps = std::exchange(parts, std::vector<Part>(lookups.n_groups()));
        for (std::size_t s = 0; s < steps.size(); ++s) {
            Part &part = parts[s / steps_per_group];
            part.lowest = std::min(part.lowest, steps[s].lowest);
            part.sum += steps[s].sum;
        }
        if (try_parts(steps_per_group)) return;
        parts = steps;
    }
    try_parts(1);
}

void Weighting::quantise_exactly(Quantised &out) const {
    const std::size_t n_values = exact_steps * Lookups::per_step * lookups.n_entries();
    out.factors.clear();
    for (std::size_t i = 0; i < exact_units_.size(); ++i) {
        const std::size_t first = i * n_values, n = std::min(n_values, row_weights.size() - first);
        scanner_->round_down(&row_weights[first], n, unit / exact_units_[i], &out.rows[first]);
        out.factors.push_back(static_cast<std::uint32_t>(exact_units_[i] / sum_unit) * 0x10001u);
    }
    out.row_scale = unit / sum_unit;
}

float Weighting::scale(float scaled_limit) const {
    scaled_limit = std::max(scaled_limit, smallest);
    if (sums8_) return even ? std::floor(254 / std::max(scaled_limit, 1.0f)) : 254 / scaled_limit;
    if (even || exact_steps) return 1;
    return 1 / std::min(scaled_limit, *std::max_element(heaviest_.begin(), heaviest_.end()));
}

void Weighting::quantise(float scale, Quantised &out) const {
    out.scale = out.row_scale = out.block_scale = scale;
    out.rows.resize(row_weights.size());
    out.blocks.resize(half_weights.size());
    if (sums8_) {
        scanner_->round_down(row_weights.data(), row_weights.size(), scale, out.rows.data());
    } else {
        // The two half bytes of a byte may exceed 8 bits if all their bits differ.
        out.block_scale = even ? 1 : std::min(160 * scale, largest_sum / std::max(prefix.back(), smallest));
        if (exact_steps) quantise_exactly(out);
        else quantise_groups(scale, out);
    }
    scanner_->round_down(half_weights.data(), half_weights.size(), out.block_scale, out.blocks.data());
}

// The tables of a group use all 8 bits. Its factor makes up for it: a group of lighter bits has a smaller one.
void Weighting::quantise_groups(float scale, Quantised &out) const {
    // If all weights are equal, entries are multiples of 16: their averages are exact, and sums count bits.
    const float most = std::min(largest_factor * 255 * scale,
                                largest_sum * tables_per_group / std::max(prefix.back(), smallest));
    const std::size_t n_values = static_cast<std::size_t>(tables_per_group) * lookups.n_entries();
    out.factors.clear();
    out.rounding = 0;
    for (std::size_t group = 0; group < heaviest_.size(); ++group) {
        const float exact = std::ceil(most * std::min(heaviest_[group], 1 / scale) / 255);
        const float factor = even ? 1 : std::clamp(exact, 1.0f, largest_factor);
        const std::size_t first = group * n_values, n = std::min(n_values, row_weights.size() - first);
        scanner_->round_down(&row_weights[first], n, even ? tables_per_group : most / factor, &out.rows[first]);
        out.factors.push_back(static_cast<std::uint32_t>(factor) * 0x10001u);
        if (!even) out.rounding += factor * 2;  // half a unit per level of the averages of 16
    }
    out.row_scale = even ? 1 : most / tables_per_group;
}

}  // namespace bitrank
