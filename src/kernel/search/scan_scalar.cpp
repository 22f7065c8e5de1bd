// The path of any machine, lane by lane.
#include "scan_loops.hpp"

namespace bitrank {
namespace {

struct Line {
    std::uint8_t lanes[lane_count];

    static constexpr unsigned index_bits = 4;
    static constexpr std::size_t blocks_of_one = 1, blocks_of_four = 1;
    static void expand(const Line *lines, Line *indices) { expand_half_bytes(lines, indices); }
    // Not inlined: the loops of scan_loops.hpp would unroll it many times over.
    template <typename Work>
    static __attribute__((noinline)) Line each(Work work) {
        Line out;
        for (std::size_t i = 0; i < lane_count; ++i) out.lanes[i] = static_cast<std::uint8_t>(work(i));
        return out;
    }
    static Line load(const std::uint8_t *p) {
        return each([&](std::size_t i) { return p[i]; });
    }
    static Line same(std::uint8_t value) {
        return each([&](std::size_t) { return value; });
    }
    static const std::uint8_t *table(const std::uint8_t *p) { return p; }
    static Line and_(const Line &a, const Line &b) {
        return each([&](std::size_t i) { return a.lanes[i] & b.lanes[i]; });
    }
    static Line or_(const Line &a, const Line &b) {
        return each([&](std::size_t i) { return a.lanes[i] | b.lanes[i]; });
    }
    static Line xor_(const Line &a, const Line &b) {
        return each([&](std::size_t i) { return a.lanes[i] ^ b.lanes[i]; });
    }
    static Line low(const Line &a) {
        return each([&](std::size_t i) { return a.lanes[i] & 15; });
    }
    static Line high(const Line &a) {
        return each([&](std::size_t i) { return a.lanes[i] >> 4; });
    }
    static Line look_up(const std::uint8_t *table, const Line &a) {
        return each([&](std::size_t i) { return table[a.lanes[i]]; });
    }
    static Line add(const Line &a, const Line &b) {
        return each([&](std::size_t i) {
            const unsigned sum = a.lanes[i] + b.lanes[i];
            return sum < 255 ? sum : 255;
        });
    }
    static Line average(const Line &a, const Line &b) {
        return each([&](std::size_t i) { return (a.lanes[i] + b.lanes[i] + 1) / 2; });
    }
    static std::uint64_t below_top(const Line &a) {
        std::uint64_t out = 0;
        for (std::size_t i = 0; i < lane_count; ++i) out |= std::uint64_t{a.lanes[i] != 255} << i;
        return out;
    }
    static Line look_up16(const std::uint8_t *table, const Line &a) { return look_up(table, a); }
};

struct Sums {
    std::uint16_t lanes[lane_count];

    static Sums zero() { return Sums{}; }
    void add(const Line &line, std::uint32_t factor) {
        for (std::size_t i = 0; i < lane_count; ++i)
            lanes[i] = static_cast<std::uint16_t>(lanes[i] + line.lanes[i] * (factor & 0xffff));
    }
    void store(std::uint16_t *p) const {
        for (std::size_t i = 0; i < lane_count; ++i) p[place_of_sum(i)] = lanes[i];
    }
    static Sums load(const std::uint16_t *p) {
        Sums out;
        for (std::size_t i = 0; i < lane_count; ++i) out.lanes[i] = p[place_of_sum(i)];
        return out;
    }
    std::uint64_t within(std::uint16_t limit) const {
        std::uint64_t out = 0;
        for (std::size_t i = 0; i < lane_count; ++i) out |= std::uint64_t{lanes[i] <= limit} << i;
        return out;
    }
};

struct Floats {
    using Difference = std::uint32_t;
    float lanes[rows_together];

    static Floats zero() { return Floats{}; }
    void add_where(const std::uint32_t *differences, std::uint32_t mask, float weight) {
        for (std::size_t i = 0; i < rows_together; ++i) lanes[i] += differences[i] & mask ? weight : 0.0f;
    }
    void add(const Floats &other) {
        for (std::size_t i = 0; i < rows_together; ++i) lanes[i] += other.lanes[i];
    }
    static void add_entries(Floats &high, Floats &low, const float *tables, const std::uint8_t *bytes) {
        for (std::size_t i = 0; i < rows_together; ++i) {
            high.lanes[i] += tables[bytes[i] >> 4];
            low.lanes[i] += tables[16 + (bytes[i] & 15)];
        }
    }
    void store(float *out) const {
        for (std::size_t i = 0; i < rows_together; ++i) out[i] = lanes[i];
    }
    static void differences(const std::uint8_t *line, std::uint8_t query, std::uint32_t *out) {
        for (std::size_t i = 0; i < rows_together; ++i) out[i] = static_cast<std::uint8_t>(line[i] ^ query);
    }
};

}  // namespace

const Scanner scalar_scanner = scanner_of<Line, Sums, Floats>();

}  // namespace bitrank
