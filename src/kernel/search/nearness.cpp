#include "nearness.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

namespace bitrank {
namespace {

// Bytes of counts that stay in the second-level cache, and of codes that stay in the first, for all queries.
constexpr std::size_t count_bytes = std::size_t{1} << 19, code_bytes = std::size_t{1} << 14;

constexpr std::size_t counts_to_guess = 1024;

// The smallest limit from `low` to `high` within which there are `last` counts.
std::size_t limit_of(const std::uint16_t *counts, std::size_t n, std::size_t last, std::size_t low, std::size_t high,
                     const Scanner &scanner) {
    // The limit of some of the counts is near that of all: look around it, farther every time.
    const bool guesses = n >= 8 * counts_to_guess;
    std::size_t middle = guesses ? limit_of(counts, counts_to_guess, last * counts_to_guess / n, low, high, scanner)
                                 : low + (high - low) / 2;
    for (std::size_t step = 1; low < high; step *= 2) {
        const bool enough = scanner.count_within(counts, n, static_cast<std::uint16_t>(middle)) >= last;
        (enough ? high : low) = enough ? middle : middle + 1;
        const std::size_t half = low + (high - low) / 2;
        middle = !guesses ? half : enough ? std::max(high - std::min(high, step), half) : std::min(low + step, half);
    }
    return low;
}

// Counts are padded to 64 with the largest.
std::uint64_t sum_of_nearest(const std::vector<std::uint16_t> &counts, std::size_t skipped, std::size_t last,
                             std::size_t n_bits, std::vector<std::uint16_t> &within, const Scanner &scanner) {
    const auto limit = static_cast<std::uint16_t>(limit_of(counts.data(), counts.size(), last, 0, n_bits, scanner));
    within.clear();
    for (std::size_t start = 0; start < counts.size(); start += lane_count)
        for (std::uint64_t rows = scanner.within16(&counts[start], limit); rows; rows &= rows - 1) {
            const auto row = static_cast<std::size_t>(std::countr_zero(rows));
            within.push_back(counts[start + place_of_sum(row)]);
        }
    std::partial_sort(within.begin(), within.begin() + static_cast<std::ptrdiff_t>(skipped), within.end());
    const std::uint64_t all = std::accumulate(within.begin(), within.end(), std::uint64_t{0});
    const std::uint64_t nearest = std::accumulate(within.begin(), within.begin() + static_cast<std::ptrdiff_t>(skipped),
                                                  std::uint64_t{0});
    return all - nearest - (within.size() - last) * limit;  // more of them than `last` are at the limit
}

}  // namespace

Sample::Sample(const std::uint8_t *codes, std::size_t n_codes, std::size_t n_bytes)
    : n_codes_(n_codes), n_bytes_(n_bytes), n_words_((n_bytes + 7) / 8),
      words_((n_codes + codes_per_group - 1) / codes_per_group * codes_per_group * n_words_) {
    for (std::size_t i = 0; i < n_codes; ++i)
        for (std::size_t word = 0; word < n_words_; ++word)
            std::memcpy(&words_[(i / codes_per_group * n_words_ + word) * codes_per_group + i % codes_per_group],
                        codes + i * n_bytes + 8 * word, std::min<std::size_t>(8, n_bytes - 8 * word));
}

void Sample::nearest_sums(const std::uint8_t *queries, std::size_t n_queries, std::size_t skipped, std::size_t last,
                          std::uint64_t *sums, const Scanner &scanner) const {
    const std::size_t n_groups = words_.size() / codes_per_group / std::max<std::size_t>(1, n_words_);
    const std::size_t padded = (n_codes_ + lane_count - 1) / lane_count * lane_count;
    const std::size_t together = std::clamp<std::size_t>(count_bytes / (2 * padded), 1, n_queries);
    const std::size_t strip = std::max<std::size_t>(1, code_bytes / (n_words_ * codes_per_group * 8));
    std::vector<std::vector<std::uint16_t>> counts(together, std::vector<std::uint16_t>(padded));
    std::vector<std::uint64_t> words(together * n_words_);
    std::vector<std::uint16_t> within;
    for (std::size_t first = 0; first < n_queries; first += together) {
        const std::size_t n = std::min(together, n_queries - first);
        for (std::size_t q = 0; q < n; ++q) std::memcpy(&words[q * n_words_], queries + (first + q) * n_bytes_, n_bytes_);
        for (std::size_t start = 0; start < n_groups; start += strip)
            for (std::size_t q = 0; q < n; ++q)
                scanner.count(&words[q * n_words_], &words_[start * codes_per_group * n_words_],
                              std::min(strip, n_groups - start), n_words_, &counts[q][start * codes_per_group]);
        for (std::size_t q = 0; q < n; ++q) {
            std::fill(counts[q].begin() + static_cast<std::ptrdiff_t>(n_codes_), counts[q].end(), 0xffff);
            sums[first + q] = sum_of_nearest(counts[q], skipped, last, 8 * n_bytes_, within, scanner);
        }
    }
}

}  // namespace bitrank
