// How one query reads codes from memory: in the way that is faster on this processor, which is measured while queries are
// answered. What a search finds does not depend on it.
#pragma once

#include <chrono>
#include <cstddef>

#include "scan.hpp"

namespace bitrank {

// Chooses between prefetching lines and leaving that to the processor, for one query. Now and then two super-blocks in a
// row are read in either way, and timed.
class Reader {
  public:
    Reader(std::size_t total_bytes, bool sums8);

    // The faster way so far.
    Reading reading() const;

    // Call scan(reading) for some blocks.
    template <typename Scan>
    auto scan(std::size_t n_blocks, Scan scan) {
        const std::size_t turn = n_blocks < fewest_blocks ? period : turn_++ % period;
        if (turn > 1) return scan(reading());
        const std::size_t way = turn ^ first_way();
        const auto start = std::chrono::steady_clock::now();
        auto out = scan(ways_[way]);
        const std::chrono::duration<float> took = std::chrono::steady_clock::now() - start;
        times_[way] = took.count() / static_cast<float>(n_blocks);
        if (turn == 1) compare();
        return out;
    }

  private:
    static constexpr std::size_t period = 32, fewest_blocks = lane_count / 2;

    std::size_t first_way() const { return turn_ / period % 2; }
    void compare();

    Reading ways_[2];
    std::size_t kind_, turn_;
    float times_[2] = {};
};

}  // namespace bitrank
