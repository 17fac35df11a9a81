// What CuTe says of sm_90a, a line a fact: fragments (thread, value, index down the columns), where the elements of a tile
// of 16 or 8 bits lie in shared memory (outer, k, byte), the descriptors of its steps of 16 or 32 along k (start, bits), and the
// swizzle that a tensor map of that tile asks for.
#include <cuda.h>

#include <cstdio>
#include <cute/atom/copy_traits_sm90.hpp>
#include <cute/atom/copy_traits_sm90_tma_swizzle.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>
#include <cute/tensor.hpp>
using namespace cute;
using namespace cute::SM90::GMMA;

template <class L> void fragment(const char* name, L layout) {
  for (int t = 0; t < size<0>(layout); ++t)
    for (int v = 0; v < size<1>(layout); ++v) printf("fragment %s %d %d %d\n", name, t, v, int(layout(t, v)));
}

template <Major MAJOR, int OUTER, int DEPTH, class T = half_t, class Atom> void tile(const char* name, int span, Atom atom) {
  using Order = conditional_t<MAJOR == Major::K, Step<_1, _2>, Step<_2, _1>>;  // boxes one after another
  auto layout = tile_to_shape(atom, Shape<Int<OUTER>, Int<DEPTH>>{}, Order{});
  auto places = as_position_independent_swizzle_layout(layout);
  for (int i = 0; i < OUTER; ++i)
    for (int k = 0; k < DEPTH; ++k) printf("place %s.%d %d %d %d\n", name, span, i, k, int(sizeof(T) * places(i, k)));
  // The base is only counted from; CuTe leaves addresses in shared memory, which the host has not, out of descriptors.
  T* const base = reinterpret_cast<T*>(1 << 20);
  auto whole = make_tensor(make_smem_ptr(base), layout);
  constexpr int STEP = 32 / sizeof(T);
  for (int step = 0; step < DEPTH / STEP; ++step) {
    auto part = local_tile(whole, Shape<Int<OUTER>, Int<STEP>>{}, make_coord(0, step));
    const auto start = reinterpret_cast<size_t>(raw_pointer_cast(part.data())) - reinterpret_cast<size_t>(base);
    printf("step %s.%d %d %d %lld\n", name, span, step, int(start), (long long)make_gmma_desc<MAJOR>(part).desc_);
  }
  if constexpr (MAJOR == Major::K) {
    const auto bits = cute::detail::get_tma_swizzle_bits(layout.layout_a());
    const CUtensorMapSwizzle mode = TMA::to_CUtensorMapSwizzle(bits, cute::detail::get_tma_swizzle_base(layout.layout_a()));
    const int bytes = mode == CU_TENSOR_MAP_SWIZZLE_128B ? 128 : mode == CU_TENSOR_MAP_SWIZZLE_64B ? 64
                      : mode == CU_TENSOR_MAP_SWIZZLE_32B ? 32 : mode == CU_TENSOR_MAP_SWIZZLE_NONE ? 0 : -1;
    printf("map %s.%d 0 0 %d\n", name, span, bytes);
  }
}

template <int OUTER, int DEPTH> void tiles(const char* k, const char* mn) {
  tile<Major::K, OUTER, DEPTH>(k, 0, Layout_K_INTER_Atom<half_t>{});
  tile<Major::K, OUTER, DEPTH>(k, 32, Layout_K_SW32_Atom<half_t>{});
  tile<Major::K, OUTER, DEPTH>(k, 64, Layout_K_SW64_Atom<half_t>{});
  tile<Major::K, OUTER, DEPTH>(k, 128, Layout_K_SW128_Atom<half_t>{});
  tile<Major::MN, OUTER, DEPTH>(mn, 0, Layout_MN_INTER_Atom<half_t>{});
  tile<Major::MN, OUTER, DEPTH>(mn, 32, Layout_MN_SW32_Atom<half_t>{});
  tile<Major::MN, OUTER, DEPTH>(mn, 64, Layout_MN_SW64_Atom<half_t>{});
  tile<Major::MN, OUTER, DEPTH>(mn, 128, Layout_MN_SW128_Atom<half_t>{});
}

template <int OUTER, int DEPTH> void tiles_of_bytes(const char* name) {
  using T = float_e4m3_t;
  tile<Major::K, OUTER, DEPTH, T>(name, 0, Layout_K_INTER_Atom<T>{});
  tile<Major::K, OUTER, DEPTH, T>(name, 32, Layout_K_SW32_Atom<T>{});
  tile<Major::K, OUTER, DEPTH, T>(name, 64, Layout_K_SW64_Atom<T>{});
  tile<Major::K, OUTER, DEPTH, T>(name, 128, Layout_K_SW128_Atom<T>{});
}

int main() {
  using Half = MMA_64x128x16_F32F16F16_RS<Major::K, Major::K>;
  using Bfloat = MMA_64x128x16_F32BF16BF16_RS<Major::K, Major::K>;
  fragment("__half.a", MMA_Traits<Half>::ALayout{});
  fragment("__half.c", MMA_Traits<Half>::CLayout{});
  fragment("__nv_bfloat16.a", MMA_Traits<Bfloat>::ALayout{});
  fragment("__nv_bfloat16.c", MMA_Traits<Bfloat>::CLayout{});
  fragment("__nv_fp8_e4m3.a", MMA_Traits<MMA_64x128x32_F32E4M3E4M3_RS_TN<>>::ALayout{});
  fragment("__nv_fp8_e4m3.c", MMA_Traits<MMA_64x128x32_F32E4M3E4M3_RS_TN<>>::CLayout{});
  fragment("__nv_fp8_e5m2.a", MMA_Traits<MMA_64x128x32_F32E5M2E5M2_RS_TN<>>::ALayout{});
  fragment("__nv_fp8_e5m2.c", MMA_Traits<MMA_64x128x32_F32E5M2E5M2_RS_TN<>>::CLayout{});
  fragment("int8_t.a", MMA_Traits<MMA_64x128x32_S32S8S8_RS_TN>::ALayout{});
  fragment("int8_t.c", MMA_Traits<MMA_64x128x32_S32S8S8_RS_TN>::CLayout{});
  fragment("store_matrix_x4", Copy_Traits<SM90_U32x4_STSM_N>::SrcLayout{});
  fragment("store_matrix_x4_trans", Copy_Traits<SM90_U16x8_STSM_T>::SrcLayout{});
  tiles<64, 128>("A.0", "A.1");
  tiles<128, 128>("B.0", "B.1");
  tiles_of_bytes<64, 128>("A.8");
  tiles_of_bytes<128, 128>("B.8");
}
