// How near the nearest codes of a sample are to queries, by Hamming distance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "scan.hpp"

namespace bitrank {

// Codes as words, those of eight codes side by side.
class Sample {
  public:
    Sample(const std::uint8_t *codes, std::size_t n_codes, std::size_t n_bytes);

    std::size_t size() const { return n_codes_; }
    std::size_t n_bytes() const { return n_bytes_; }

    // For each query, the sum of the distances of its `last` nearest codes, but for the `skipped` nearest of these.
    void nearest_sums(const std::uint8_t *queries, std::size_t n_queries, std::size_t skipped, std::size_t last,
                      std::uint64_t *sums, const Scanner &scanner) const;

  private:
    std::size_t n_codes_, n_bytes_, n_words_;
    std::vector<std::uint64_t> words_;
};

}  // namespace bitrank
