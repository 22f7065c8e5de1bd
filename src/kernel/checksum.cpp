#include "checksum.hpp"

#include <cstring>

namespace bitrank {
namespace {

constexpr std::uint64_t start = 0xcbf29ce484222325ULL, prime = 0x100000001b3ULL;
constexpr std::size_t n_sums = 8;

std::uint64_t next(std::uint64_t sum, std::uint64_t word) { return (sum ^ word) * prime; }

}  // namespace

std::uint64_t checksum(const std::uint8_t *bytes, std::size_t n) {
    std::uint64_t sums[n_sums];
    for (auto &sum : sums) sum = start;
    std::uint64_t words[n_sums];
    std::size_t at = 0;
    for (; at + sizeof words <= n; at += sizeof words) {
        std::memcpy(words, bytes + at, sizeof words);
        for (std::size_t i = 0; i < n_sums; ++i) sums[i] = next(sums[i], words[i]);
    }
    std::memset(words, 0, sizeof words);
    if (at < n) std::memcpy(words, bytes + at, n - at);
    for (std::size_t i = 0; i < n_sums; ++i) sums[i] = next(sums[i], words[i]);
    std::uint64_t out = next(start, n);
    for (const std::uint64_t sum : sums) out = next(out, sum);
    return out;
}

}  // namespace bitrank
