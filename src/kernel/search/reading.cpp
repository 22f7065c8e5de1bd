#include "reading.hpp"

#include <algorithm>
#include <atomic>

namespace bitrank {
namespace {

// Processors whose own prefetchers stop early are fastest with lines fetched 6 to 12 KB before they are scanned, and with
// several short blocks of a collection in the cache scanned together. Others are faster without both, by a third.
constexpr std::size_t bytes_ahead = 8192, bytes_by_tiles = std::size_t{1} << 24, fewest_bytes_by_tiles = std::size_t{1} << 20;

// By the kind of sums, and whether the codes fit most caches: by how much of the time reading unaided is faster, averaged.
struct Known {
    std::atomic<float> gain{0};
    std::atomic<std::size_t> n_readers{0};
};
Known known[4];
constexpr float most_gain = 0.25f, share_of_last = 0.125f;  // one pair of times says little: a thread may be interrupted

}  // namespace

Reader::Reader(std::size_t total_bytes, bool sums8)
    : ways_{{bytes_ahead, total_bytes <= bytes_by_tiles}, {0, total_bytes <= fewest_bytes_by_tiles}},
      kind_((sums8 ? 2u : 0u) + (total_bytes <= bytes_by_tiles ? 1u : 0u)),
      turn_(2 * known[kind_].n_readers.fetch_add(1, std::memory_order_relaxed)) {}

Reading Reader::reading() const { return ways_[known[kind_].gain.load(std::memory_order_relaxed) > 0 ? 1 : 0]; }

void Reader::compare() {
    const float sum = times_[0] + times_[1];
    if (!(sum > 0)) return;
    const float gain = std::clamp((times_[0] - times_[1]) / sum, -most_gain, most_gain);
    std::atomic<float> &average = known[kind_].gain;
    const float before = average.load(std::memory_order_relaxed);
    average.store(before + (gain - before) * share_of_last, std::memory_order_relaxed);
}

}  // namespace bitrank
