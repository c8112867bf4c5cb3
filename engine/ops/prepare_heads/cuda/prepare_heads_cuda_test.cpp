// Rotation, transform and cache of heads on a card: the CPU's bits, one op at a time and fused.
#include "engine/ops/prepare_heads/cuda/prepare_heads_cuda.h"

#include "engine/ops/common/cuda/row_routes.h"
#include "engine/ops/common/cuda/row_test_util.h"
#include "engine/ops/hadamard/cuda/hadamard_cuda.h"
#include "engine/ops/hadamard/hadamard.h"
#include "engine/ops/kv_write/cuda/kv_write_cuda.h"
#include "engine/ops/kv_write/kv_write.h"
#include "engine/ops/rmsnorm/rmsnorm.h"
#include "engine/ops/rope/cuda/rope_cuda.h"

namespace lockstep {
namespace {

using namespace op_test;

constexpr float kEps = 1e-6f;

class HeadsCuda : public testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_CARD(); }
  ThreadPool pool_{1};
};

std::vector<RopePosition> text_positions(int64_t n, int32_t first) {
  std::vector<RopePosition> positions;
  for (int32_t t = 0; t < n; ++t) {
    positions.push_back({first + t, first + 7 * t, first + 1000 - t});
  }
  return positions;
}

GuardedBytes angles_of(const std::vector<RopePosition>& positions,
                       const std::vector<float>& inv_freq) {
  const auto n = static_cast<int64_t>(positions.size());
  const auto n_pairs = static_cast<int>(inv_freq.size());
  const GuardedBytes positions_card(positions);
  const GuardedBytes inv_freq_card(inv_freq);
  GuardedBytes angles(n * n_pairs * 8);
  rope_angles_cuda(positions_card.as<RopePosition>(), inv_freq_card.as<float>(), n, n_pairs,
                   angles.as<float>(), card_stream());
  EXPECT_TRUE(angles.walls_intact());
  return angles;
}

TEST_F(HeadsCuda, RotationHasTheBitsOfTheCpu) {
  constexpr int kHeads = 3;
  constexpr int kDim = 256;
  constexpr int64_t kStride = kHeads * kDim + 16;
  for (const int rotary_dim : {4, 64, 256}) {
    for (const int32_t first : {0, 1, 511, 262000}) {
      const int64_t n = first == 511 ? 70 : 3;
      const std::vector<RopePosition> positions = text_positions(n, first);
      const std::vector<float> inv_freq = rope_inverse_frequencies(1e7, rotary_dim);
      const std::vector<float> x = random_floats(1, n * kStride, 3.0f, Rounding::bf16);
      std::vector<float> want = x;
      rope({want.data(), kStride, positions.data(), inv_freq.data(), n, kHeads, kDim, rotary_dim,
            Rounding::bf16},
           pool_);
      const GuardedBytes angles = angles_of(positions, inv_freq);
      const GuardedBytes x_card(bf16_of_floats(x));
      rope_cuda(
          {x_card.as<uint16_t>(), kStride, angles.as<float>(), n, kHeads, kDim, rotary_dim / 2},
          card_stream());
      EXPECT_TRUE(x_card.walls_intact());
      expect_same_bf16(x_card.values<uint16_t>(), want, "rope from " + std::to_string(first));
    }
  }
}

TEST_F(HeadsCuda, VisionRotationHasTheBitsOfTheCpu) {
  constexpr int kHeads = 4;
  for (const int head_dim : {64, 72}) {
    const std::vector<float> inv_freq = rope_inverse_frequencies(10000.0, head_dim / 2);
    const int64_t stride = 3 * kHeads * head_dim;
    std::vector<GridPosition> positions;
    for (int32_t i = 0; i < 60; ++i) positions.push_back({i * 3 % 97, 200 - i});
    const auto n = static_cast<int64_t>(positions.size());
    const std::vector<float> x = random_floats(1, n * stride, 3.0f, Rounding::bf16);
    std::vector<float> want = x;
    vision_rope({want.data(), stride, positions.data(), inv_freq.data(), n, kHeads, head_dim,
                 Rounding::bf16},
                pool_);
    const GuardedBytes positions_card(positions);
    const GuardedBytes inv_freq_card(inv_freq);
    const GuardedBytes angles(n * head_dim / 2 * 8);
    vision_rope_angles_cuda(positions_card.as<GridPosition>(), inv_freq_card.as<float>(), n,
                            head_dim / 2, angles.as<float>(), card_stream());
    const GuardedBytes x_card(bf16_of_floats(x));
    rope_cuda(
        {x_card.as<uint16_t>(), stride, angles.as<float>(), n, kHeads, head_dim, head_dim / 2},
        card_stream());
    EXPECT_TRUE(x_card.walls_intact() && angles.walls_intact());
    expect_same_bf16(x_card.values<uint16_t>(), want, "vision rope");
  }
}

TEST_F(HeadsCuda, HadamardHasTheBitsOfTheCpu) {
  for (const int width : {64, 128, 256}) {
    for (const int64_t n_rows : {1, 7, 8, 9}) {
      const int64_t stride = width + 4;
      const std::vector<float> x = random_floats(1, n_rows * stride, 3.0f, Rounding::bf16);
      std::vector<float> want = x;
      hadamard(want.data(), stride, n_rows, width, Rounding::bf16, pool_);
      const GuardedBytes x_card(bf16_of_floats(x));
      hadamard_cuda(x_card.as<uint16_t>(), stride, n_rows, width, card_stream());
      EXPECT_TRUE(x_card.walls_intact());
      expect_same_bf16(x_card.values<uint16_t>(), want, "hadamard");
    }
  }
}

// Pages on the host and on the card, both poisoned, in an order that is not ascending.
struct Pages {
  Pages(KvType type, int n_kv_heads, int head_dim, int64_t n_positions)
      : bytes(static_cast<size_t>((n_positions / kPageTokens + 2) *
                                  kv_page_bytes(type, n_kv_heads, head_dim)),
              std::byte{0xff}),
        view{type, n_kv_heads, head_dim, nullptr, nullptr} {
    for (int64_t i = n_positions / kPageTokens + 1; i > 0; --i) {
      table.push_back(static_cast<uint32_t>(i));
    }
    pool_card = std::make_unique<GuardedBytes>(bytes);
    table_card = std::make_unique<GuardedBytes>(table);
  }
  KvView on_host() {
    view.pool = bytes.data();
    view.page_table = table.data();
    return view;
  }
  KvView on_card() {
    view.pool = pool_card->data();
    view.page_table = table_card->as<uint32_t>();
    return view;
  }
  void expect_same(const std::string& what) const {
    EXPECT_TRUE(pool_card->walls_intact()) << what;
    const std::vector<std::byte> got = pool_card->values<std::byte>();
    size_t n_different = 0;
    for (size_t i = 0; i < got.size(); ++i) n_different += got[i] != bytes[i] ? 1 : 0;
    EXPECT_EQ(n_different, 0u) << what;
  }

  std::vector<std::byte> bytes;
  std::vector<uint32_t> table;
  KvView view;
  std::unique_ptr<GuardedBytes> pool_card;
  std::unique_ptr<GuardedBytes> table_card;
};

// Ordinary values, groups of zeros, values that binary16 cannot hold, NaN and infinities.
std::vector<float> cache_values(uint64_t seed, int64_t n) {
  std::vector<float> x = random_floats(seed, n, 4.0f, Rounding::bf16);
  PhiloxStream random(seed, 3);
  for (int64_t group = 0; group < n / 64; ++group) {
    float* values = x.data() + group * 64;
    const auto place = static_cast<int64_t>(random.next_below(64));
    switch (random.next_below(12)) {
      case 0:
        std::fill_n(values, 64, 0.0f);
        break;
      case 1:
        values[place] = round_to_bf16(3e7f);
        break;
      case 2:
        values[place] = -70000.0f;
        break;
      case 3:
        values[place] = NAN;
        break;
      case 4:
        values[place] = INFINITY;
        break;
      case 5:
        for (int i = 0; i < 64; ++i) values[i] *= 0x1p-24f;
        break;
      default:
        break;
    }
  }
  return floats_of_bf16(bf16_of_floats(x));
}

TEST_F(HeadsCuda, CacheHasTheBytesOfTheCpu) {
  for (const KvType type : kv_routes()) {
    for (const int head_dim : {64, 256}) {
      for (const int64_t first : {0, 1, 62, 63, 64, 127}) {
        const int64_t n = first == 62 ? 70 : 3;
        constexpr int kHeads = 2;
        const int64_t stride = kHeads * head_dim + 8;
        const std::vector<float> k = cache_values(1, n * stride);
        const std::vector<float> v = cache_values(2, n * stride);
        Pages pages(type, kHeads, head_dim, first + n);
        kv_write({pages.on_host(), k.data(), v.data(), stride, stride, first, n});
        const GuardedBytes k_card(bf16_of_floats(k));
        const GuardedBytes v_card(bf16_of_floats(v));
        const GuardedBytes first_card(std::vector<int32_t>{static_cast<int32_t>(first)});
        kv_write_cuda({pages.on_card(), k_card.as<uint16_t>(), stride, v_card.as<uint16_t>(),
                       stride, first_card.as<int32_t>(), n},
                      card_stream());
        pages.expect_same("type " + std::to_string(static_cast<int>(type)) + ", first " +
                          std::to_string(first));
      }
    }
  }
}

// Projections of n columns, as q_proj (query and gate of a head side by side), k_proj and v_proj
// leave them, and what the CPU ops make of them one after the other.
struct Projected {
  Projected(int64_t n_tokens, int heads, int kv_heads, int dim, int pairs, int32_t first)
      : n(n_tokens),
        n_heads(heads),
        n_kv_heads(kv_heads),
        head_dim(dim),
        positions(text_positions(n_tokens, first)),
        inv_freq(rope_inverse_frequencies(1e7, 2 * pairs)),
        qg(random_floats(1, n_tokens * heads * 2 * dim, 3.0f, Rounding::bf16)),
        k(random_floats(2, n_tokens * kv_heads * dim, 3.0f, Rounding::bf16)),
        v(random_floats(3, n_tokens * kv_heads * dim, 3.0f, Rounding::bf16)),
        q_norm(random_floats(4, dim, 0.5f)),
        k_norm(random_floats(5, dim, 0.5f)) {}

  std::vector<float> prepared(const std::vector<float>& x, int64_t stride,
                              const std::vector<float>& norm, int heads, bool rotate,
                              ThreadPool& pool) const {
    std::vector<float> out(static_cast<size_t>(n * heads * head_dim));
    rmsnorm({x.data(), stride, norm.data(), out.data(), head_dim, n * heads, head_dim, kEps, 1.0f,
             Rounding::bf16},
            pool);
    rope({out.data(), int64_t{heads} * head_dim, positions.data(), inv_freq.data(), n, heads,
          head_dim, static_cast<int>(2 * inv_freq.size()), Rounding::bf16},
         pool);
    if (rotate) hadamard(out.data(), head_dim, n * heads, head_dim, Rounding::bf16, pool);
    return out;
  }

  int64_t n;
  int n_heads;
  int n_kv_heads;
  int head_dim;
  std::vector<RopePosition> positions;
  std::vector<float> inv_freq;
  std::vector<float> qg;
  std::vector<float> k;
  std::vector<float> v;
  std::vector<float> q_norm;
  std::vector<float> k_norm;
};

struct Parts {
  bool queries;
  bool keys;
};

void check_fused(const Projected& p, KvType type, bool rotate, int32_t first, Parts parts,
                 ThreadPool& pool) {
  const int64_t kv_width = int64_t{p.n_kv_heads} * p.head_dim;
  Pages pages(type, p.n_kv_heads, p.head_dim, first + p.n);
  if (parts.keys) {
    const std::vector<float> k = p.prepared(p.k, p.head_dim, p.k_norm, p.n_kv_heads, rotate, pool);
    kv_write({pages.on_host(), k.data(), p.v.data(), kv_width, kv_width, first, p.n});
  }
  const GuardedBytes qg(bf16_of_floats(p.qg));
  const GuardedBytes k(bf16_of_floats(p.k));
  const GuardedBytes v(bf16_of_floats(p.v));
  const GuardedBytes q_norm(p.q_norm);
  const GuardedBytes k_norm(p.k_norm);
  const GuardedBytes q_out(p.n * p.n_heads * p.head_dim * 2);
  const GuardedBytes first_card(std::vector<int32_t>{first});
  const GuardedBytes angles = angles_of(p.positions, p.inv_freq);
  PrepareHeadsCudaArgs args;
  args.q = parts.queries ? qg.as<uint16_t>() : nullptr;
  args.q_stride = int64_t{p.n_heads} * 2 * p.head_dim;
  args.q_head_stride = int64_t{2} * p.head_dim;
  args.q_norm = q_norm.as<float>();
  args.q_out = q_out.as<uint16_t>();
  args.n_heads = p.n_heads;
  args.k = parts.keys ? k.as<uint16_t>() : nullptr;
  args.v = v.as<uint16_t>();
  args.k_stride = args.v_stride = kv_width;
  args.k_norm = k_norm.as<float>();
  args.cache = pages.on_card();
  args.first_position = first_card.as<int32_t>();
  args.angles = angles.as<float>();
  args.n_pairs = static_cast<int>(p.inv_freq.size());
  args.rotate = rotate;
  args.eps = kEps;
  args.n_tokens = p.n;
  prepare_heads_cuda(args, card_stream());
  EXPECT_TRUE(q_out.walls_intact());
  if (parts.queries) {
    expect_same_bf16(q_out.values<uint16_t>(),
                     p.prepared(p.qg, int64_t{2} * p.head_dim, p.q_norm, p.n_heads, rotate, pool),
                     "queries");
  } else {
    for (const uint16_t b : q_out.values<uint16_t>()) ASSERT_EQ(b, 0xffff);
  }
  pages.expect_same("fused, first " + std::to_string(first));
}

TEST_F(HeadsCuda, FusedIsTheSeparateOps) {
  for (const KvType type : kv_routes()) {
    for (const bool rotate : {false, true}) {
      for (const int32_t first : {0, 62, 64}) {
        for (const int64_t n : {1, 2, 8, 67}) {
          const Projected p(n, 6, 2, 256, 32, first);
          check_fused(p, type, rotate, first, {true, true}, pool_);
        }
      }
    }
  }
}

TEST_F(HeadsCuda, FusedInParts) {
  const Projected p(3, 5, 1, 256, 32, 9);
  check_fused(p, KvType::int8, true, 9, {true, false}, pool_);
  check_fused(p, KvType::int8, true, 9, {false, true}, pool_);
  for (const int pairs : {16, 64, 128}) {
    check_fused(Projected(3, 2, 1, 256, pairs, 5), KvType::int8, true, 5, {true, true}, pool_);
  }
  check_fused(Projected(3, 2, 1, 128, 32, 5), KvType::int8, true, 5, {true, true}, pool_);
  check_fused(Projected(3, 2, 1, 64, 16, 5), KvType::fp16, true, 5, {true, true}, pool_);
}

}  // namespace
}  // namespace lockstep
