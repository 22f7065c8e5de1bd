#include "layout.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include "parallel.hpp"

namespace bitrank {
namespace {

// Transpose an 8 x 8 bit matrix: bit j of byte i becomes bit i of byte j.
std::uint64_t transposed(std::uint64_t x) {
    std::uint64_t t = (x ^ (x >> 7)) & 0x00aa00aa00aa00aaULL;
    x ^= t ^ (t << 7);
    t = (x ^ (x >> 14)) & 0x0000cccc0000ccccULL;
    x ^= t ^ (t << 14);
    t = (x ^ (x >> 28)) & 0x00000000f0f0f0f0ULL;
    return x ^ t ^ (t << 28);
}

// Convert 64 bytes to 8 planes of 64 bits, the most significant bit first, and back.
void to_planes(const std::uint8_t *bytes, std::uint64_t *planes) {
    std::fill_n(planes, 8, 0);
    for (std::size_t group = 0; group < 8; ++group) {
        std::uint64_t x = 0;
        for (std::size_t i = 0; i < 8; ++i) x |= std::uint64_t{bytes[group * 8 + i]} << (8 * i);
        x = transposed(x);
        for (std::size_t bit = 0; bit < 8; ++bit) planes[bit] |= (x >> (8 * (7 - bit)) & 255) << (8 * group);
    }
}

void from_planes(const std::uint64_t *planes, std::uint8_t *bytes) {
    for (std::size_t group = 0; group < 8; ++group) {
        std::uint64_t x = 0;
        for (std::size_t bit = 0; bit < 8; ++bit) x |= (planes[bit] >> (8 * group) & 255) << (8 * (7 - bit));
        x = transposed(x);
        for (std::size_t i = 0; i < 8; ++i) bytes[group * 8 + i] = static_cast<std::uint8_t>(x >> (8 * i));
    }
}

struct Item {
    std::uint64_t key;
    std::uint32_t row;
};

std::uint64_t position_in_gray_code(std::uint64_t x) {
    for (int shift = 1; shift < 64; shift *= 2) x ^= x >> shift;
    return x;
}

// Sort keys of 64 bits: word w holds the permuted bits 64 * w to 64 * w + 63 of a code.
class Keys {
public:
    Keys(const std::uint8_t *codes, Order order) : codes_(codes), order_(order), n_bytes_(order.n_bytes()) {
        first_.assign(n_bytes_ * 256, 0);
        for (std::size_t i = 0; i < std::min<std::size_t>(64, order.n_bits); ++i)
            for (std::size_t value = 0; value < 256; ++value)
                if (value >> (7 - order.bits[i] % 8) & 1)
                    first_[order.bits[i] / 8 * 256 + value] |= std::uint64_t{1} << (63 - i);
    }

    std::size_t n_words() const { return (order_.n_bits + 63) / 64; }

    std::uint64_t first(std::size_t row) const {
        std::uint64_t key = 0;
        for (std::size_t byte = 0; byte < n_bytes_; ++byte) key |= first_[byte * 256 + codes_[row * n_bytes_ + byte]];
        return position_in_gray_code(key);
    }

    std::uint64_t word(std::size_t row, std::size_t w) const {
        std::uint64_t key = 0;
        for (std::size_t i = w * 64; i < std::min(order_.n_bits, w * 64 + 64); ++i) {
            const std::size_t bit = order_.bits[i];
            key = key << 1 | (codes_[row * n_bytes_ + bit / 8] >> (7 - bit % 8) & 1);
        }
        return key;
    }

private:
    const std::uint8_t *codes_;
    Order order_;
    std::size_t n_bytes_;
    std::vector<std::uint64_t> first_;  // the bits of the first word, per byte and value
};

// Sort by key, which holds word w; equal keys by the next word, and equal codes by id.
void sort_items(Item *first, Item *last, std::size_t w, const Keys &keys, const std::int64_t *ids) {
    std::sort(first, last, [](const Item &a, const Item &b) { return a.key < b.key; });
    for (Item *start = first; start < last;) {
        Item *stop = start + 1;
        while (stop < last && stop->key == start->key) ++stop;
        if (stop - start > 1 && w + 1 < keys.n_words()) {
            for (Item *item = start; item < stop; ++item) item->key = keys.word(item->row, w + 1);
            sort_items(start, stop, w + 1, keys, ids);
        } else if (stop - start > 1) {
            std::sort(start, stop, [&](const Item &a, const Item &b) { return ids[a.row] < ids[b.row]; });
        }
        start = stop;
    }
}

}  // namespace

void sorted_rows(const std::uint8_t *codes, const std::int64_t *ids, std::size_t n_rows, Order order,
                 std::size_t n_threads, std::uint32_t *rows) {
    constexpr int bucket_bits = 12;
    constexpr std::size_t n_buckets = std::size_t{1} << bucket_bits, strip = 1 << 16;
    const Keys keys(codes, order);
    // Uninitialised: zeroing them would cost as much as sorting a bucket.
    const auto firsts = std::make_unique_for_overwrite<std::uint64_t[]>(n_rows);
    const auto items = std::make_unique_for_overwrite<Item[]>(n_rows);
    parallel_for((n_rows + strip - 1) / strip, n_threads, [&](std::size_t s) {
        for (std::size_t row = s * strip; row < std::min(n_rows, (s + 1) * strip); ++row) firsts[row] = keys.first(row);
    });
    std::vector<std::size_t> starts(n_buckets + 1, 0);
    for (std::size_t row = 0; row < n_rows; ++row) ++starts[(firsts[row] >> (64 - bucket_bits)) + 1];
    for (std::size_t b = 1; b <= n_buckets; ++b) starts[b] += starts[b - 1];
    std::vector<std::size_t> ends(starts.begin(), starts.end() - 1);
    for (std::size_t row = 0; row < n_rows; ++row)
        items[ends[firsts[row] >> (64 - bucket_bits)]++] = {firsts[row], static_cast<std::uint32_t>(row)};
    parallel_for(n_buckets, n_threads, [&](std::size_t b) {
        sort_items(items.get() + starts[b], items.get() + starts[b + 1], 0, keys, ids);
        for (std::size_t i = starts[b]; i < starts[b + 1]; ++i) rows[i] = items[i].row;
    });
}

void build(const std::uint8_t *codes, const std::uint32_t *rows, std::size_t n_rows, Order order,
           std::size_t n_threads, std::uint8_t *blocks, std::uint8_t *bounds, std::uint8_t *supers) {
    const std::size_t n_bytes = order.n_bytes();
    const std::size_t n_blocks = (n_rows + lane_count - 1) / lane_count;
    const std::size_t n_supers = (n_blocks + lane_count - 1) / lane_count;
    parallel_for(n_supers, n_threads, [&](std::size_t super) {
        std::vector<std::uint8_t> tile(n_bytes * lane_count);
        std::vector<std::uint64_t> planes(n_bytes * 8);
        std::uint8_t *super_bounds = bounds + super * n_bytes * 2 * lane_count;
        std::uint8_t *shared = supers + super * n_bytes * 2;
        std::fill_n(super_bounds, n_bytes * 2 * lane_count, 0);
        for (std::size_t b = super * lane_count; b < std::min(n_blocks, (super + 1) * lane_count); ++b) {
            for (std::size_t lane = 0; lane < lane_count; ++lane) {
                const std::size_t ahead = b * lane_count + lane + 16;
                if (ahead < n_rows) __builtin_prefetch(codes + rows[ahead] * n_bytes);
                const std::uint8_t *code = codes + rows[std::min(b * lane_count + lane, n_rows - 1)] * n_bytes;
                for (std::size_t byte = 0; byte < n_bytes; ++byte) tile[byte * lane_count + lane] = code[byte];
            }
            for (std::size_t byte = 0; byte < n_bytes; ++byte) to_planes(&tile[byte * lane_count], &planes[byte * 8]);
            for (std::size_t byte = 0; byte < n_bytes; ++byte) {
                std::uint64_t permuted[8] = {};
                unsigned value = 0, agree = 0;
                for (std::size_t i = 0; i < 8; ++i) {
                    if (byte * 8 + i < order.n_bits) permuted[i] = planes[order.bits[byte * 8 + i]];
                    value = value << 1 | (permuted[i] & 1);
                    agree = agree << 1 | (permuted[i] == 0 || ~permuted[i] == 0);
                }
                from_planes(permuted, blocks + (b * n_bytes + byte) * lane_count);
                super_bounds[byte * 2 * lane_count + b % lane_count] = static_cast<std::uint8_t>(value);
                super_bounds[(byte * 2 + 1) * lane_count + b % lane_count] = static_cast<std::uint8_t>(agree);
                if (b % lane_count == 0) {
                    shared[byte * 2] = static_cast<std::uint8_t>(value);
                    shared[byte * 2 + 1] = 255;
                }
                shared[byte * 2 + 1] &= static_cast<std::uint8_t>(agree & ~(value ^ shared[byte * 2]));
            }
        }
    });
}

void restore(const std::uint8_t *blocks, std::size_t n_rows, Order order, std::size_t n_threads, std::uint8_t *codes) {
    const std::size_t n_bytes = order.n_bytes();
    parallel_for((n_rows + lane_count - 1) / lane_count, n_threads, [&](std::size_t b) {
        std::vector<std::uint64_t> planes(n_bytes * 8, 0);
        std::uint8_t column[lane_count];
        for (std::size_t byte = 0; byte < n_bytes; ++byte) {
            std::uint64_t permuted[8];
            to_planes(blocks + (b * n_bytes + byte) * lane_count, permuted);
            for (std::size_t i = 0; i < 8 && byte * 8 + i < order.n_bits; ++i)
                planes[order.bits[byte * 8 + i]] = permuted[i];
        }
        const std::size_t n_lanes = std::min(lane_count, n_rows - b * lane_count);
        for (std::size_t byte = 0; byte < n_bytes; ++byte) {
            from_planes(&planes[byte * 8], column);
            for (std::size_t lane = 0; lane < n_lanes; ++lane)
                codes[(b * lane_count + lane) * n_bytes + byte] = column[lane];
        }
    });
}

}  // namespace bitrank
