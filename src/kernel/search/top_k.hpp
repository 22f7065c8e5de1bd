// The k best hits so far, by distance and then by id.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace bitrank {

constexpr float infinity = std::numeric_limits<float>::infinity();

struct Hit {
    float distance;
    std::int64_t id;
    std::int64_t row;  // numbered across all segments

    // Branch-free: comparisons in a heap are unpredictable.
    bool operator<(const Hit &other) const {
        return (distance < other.distance) | ((distance == other.distance) & (id < other.id));
    }
};

class TopK {
public:
    // At most k hits, none farther than the radius.
    TopK(std::size_t k, float radius) : k_(k), radius_(radius) { heap_.reserve(std::min(k, reserved)); }

    // The distance of the k-th best hit so far, or the radius while there are fewer: no farther hit can enter.
    float limit() const { return heap_.size() < k_ ? radius_ : std::min(radius_, heap_.front().distance); }

    bool would_enter(const Hit &hit) const {
        return hit.distance <= radius_ && (heap_.size() < k_ || hit < heap_.front());
    }

    bool add(const Hit &hit) {
        if (!would_enter(hit)) return false;
        if (heap_.size() == k_) {
            replace_farthest(hit);
        } else {
            heap_.push_back(hit);
            if (heap_.size() == k_) std::make_heap(heap_.begin(), heap_.end());
        }
        return true;
    }

    // Lower the radius to the limit of another thread.
    void lower_radius(float radius) { radius_ = std::min(radius_, radius); }

    const std::vector<Hit> &hits() const { return heap_; }

    // All hits, nearest first or in any order, and none left.
    std::vector<Hit> take(bool sorted) {
        if (sorted) std::sort(heap_.begin(), heap_.end());
        return std::move(heap_);
    }

private:
    // Replace the farthest hit in one descent, half the work of std::pop_heap and std::push_heap.
    void replace_farthest(const Hit &hit) {
        std::size_t hole = 0;
        for (std::size_t child = 1; child < heap_.size(); child = 2 * hole + 1) {
            if (child + 1 < heap_.size()) child += heap_[child] < heap_[child + 1];
            if (!(hit < heap_[child])) break;
            heap_[hole] = heap_[child];
            hole = child;
        }
        heap_[hole] = hit;
    }

    static constexpr std::size_t reserved = 256;

    std::size_t k_;
    float radius_;
    std::vector<Hit> heap_;
};

}  // namespace bitrank
