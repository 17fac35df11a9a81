// RUN: xdsl-opt -p 'treadle{arch=sm_80}' -t cuda-c %s | filecheck %s

// 40 numbers are two steps of m16n8k16 and half a one, of m16n8k8: tiles are 40 wide, and nothing fills them up.

!Q = tensor<?x40xf16, #diagram.array<[q, d]>>
!K = tensor<?x40xf16, #diagram.array<[x, d]>>
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!M = tensor<?xf32, #diagram.array<[q]>>

func.func @scores(%Q: !Q, %K: !K) -> !M attributes {sizes = #diagram.sizes<q = 64, x = 128>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %M = diagram.reduce max %S over [x] : !S -> !M
  func.return %M : !M
}

// CHECK: load_matrix_x4(Q_2[d16], &Q_shared[Q_shared_lane + d16 * 16]);
// CHECK: load_matrix_x2(Q_2[2][0], &Q_shared[{{.*}} + 2 * 16]);
// CHECK: UNROLL for (int d16 = 0; d16 < 2; ++d16) {
// CHECK: mma_m16n8k16(S[x8], Q_2[d16], rhs[0]);
// CHECK: load_matrix_x2(rhs, {{.*}} + 2 * 16 + x8 * 320]);
// CHECK-NEXT: mma_m16n8k8(S[x8], Q_2[2][0], rhs[0]);
// CHECK-NEXT: mma_m16n8k8(S[x8 + 1], Q_2[2][0], rhs[1]);
