// RUN: xdsl-opt -p 'set-machine{name=h100},cuda-speculate' %s | filecheck %s

#rows = #cuda.layout<register = [q:2:8], lane = [q:8:1, 4], warp = [q:4:16]>
#scores = #cuda.layout<register = [x:8:8, q:2:8, x:2:1], lane = [q:8:1, x:4:2], warp = [q:4:16]>
#across = #cuda.layout<register = [x:16:1, q:8:8], lane = [q:8:1, 4], warp = [x:4:16]>
#powers = #cuda.layout<register = [x:4:16, x:2:8, q:2:8, x:2:1], lane = [q:8:1, x:4:2], warp = [q:4:16]>
#places = #cuda.layout<register = [x:8:8, x:2:1], lane = [8, x:4:2], warp = [4]>
#sums = #cuda.layout<register = [e:8:8, q:2:8, e:2:1], lane = [q:8:1, e:4:2], warp = [q:4:16]>
#boxes = #cuda.boxes<extents = [64, 64], span = 64>
!Q = memref<64x64xf16, #diagram.array<[q, d], level = shared, layout = #boxes>>
!K = memref<64x64xf16, #diagram.array<[x, d], level = shared, layout = #boxes>>
!V = memref<64x64xf16, #diagram.array<[x, e], level = shared, layout = #boxes>>
!m = tensor<64xf32, #diagram.array<[q], level = register, layout = #rows>>
!s = tensor<64x64xf32, #diagram.array<[q, x], level = register, layout = #scores>>
!p = tensor<64x64xf16, #diagram.array<[q, x], level = register, layout = #powers>>
!at = tensor<64xi32, #diagram.array<[x], level = register, layout = #places>>
!t = tensor<64x64xf32, #diagram.array<[q, x], level = register, layout = #across>>
!o = tensor<64x64xf32, #diagram.array<[q, e], level = register, layout = #sums>>

// The powers come first, told from what the turn before left; what is told from the maximum alone is kept beside it, and
// an offset that no power is to be told from is minus infinity. What a maximum moves by is one as long as it stays.

// CHECK-LABEL: cuda.kernel @sums (%x: index) threads 256 shared 24576 resident 2 {
// CHECK: %P_none = diagram.fill
// CHECK-NEXT: %offset = diagram.map (%kept = %m_none
// CHECK: %offset_kept = diagram.map (%m_none_1 = %m_none : {{.*}}, %offset_1 = %offset :
// CHECK-NEXT: [[size:%[0-9]+]] = math.absf %m_none_1 : f32
// CHECK-NEXT: [[fine:%[0-9]+]] = arith.constant 0x4B000000 : f32
// CHECK-NEXT: [[lags:%[0-9]+]] = arith.cmpf olt, [[size]], [[fine]] : f32
// CHECK-NEXT: [[none:%[0-9]+]] = arith.constant 0xff800000 : f32
// CHECK-NEXT: = arith.select [[lags]], %offset_1, [[none]] : f32
// CHECK: scf.for %x0 = %zero to %x step %piece iter_args(%m_before = %m_none, %l_before = %l_none, %O_before = %O_none, %P_before = %P_none, %offset_kept_1 = %offset_kept)
// CHECK: %S = cuda.warpgroup_wait %S_started pending 1
// CHECK-NEXT: %P = diagram.map (%score = %S : {{.*}}, %from = %offset_kept_1 :
// CHECK: %l_new = diagram.reduce add %P over [x] {partial}
// CHECK-NEXT: %P16 = diagram.cast %P
// CHECK-NEXT: %moved_one = diagram.fill 1.000000e+00 : f32
// CHECK-NEXT: %grown = cuda.exceeds %l_new limit 256.0
// CHECK-NEXT: %m_kept, %moved, %l_new_1, %P16_1, %offset_1 = scf.if %grown

// If a lane's sum is too large, all is made anew from the maximum as it is then.

// CHECK-NEXT: %m_new = diagram.reduce max %S over [x] into %m_before
// CHECK-NEXT: %m_kept_1 = diagram.map (%new = %m_new : {{.*}}, %before = %m_before :
// CHECK: %offset_2 = diagram.map (%kept = %m_kept_1 :
// CHECK: %P_1 = diagram.map (%score = %S : {{.*}}, %from = %offset_2 :
// CHECK: %moved_1 = diagram.map (%before = %m_before : {{.*}}, %kept = %m_kept_1 :
// CHECK: %l_new_2 = diagram.reduce add %P_1 over [x] {partial}
// CHECK-NEXT: %P16_2 = diagram.cast %P_1
// CHECK-NEXT: %offset_kept_2 = diagram.map (%m_kept_2 = %m_kept_1 : {{.*}}, %offset_3 = %offset_2 :
// CHECK: scf.yield %m_kept_1, %moved_1, %l_new_2, %P16_2, %offset_kept_2
// CHECK-NEXT: } else {
// CHECK-NEXT: scf.yield %m_before, %moved_one, %l_new, %P16, %offset_kept_1
// CHECK-NEXT: }

// What a sum begins with is added behind, and what was started before is awaited as late as it was.

// CHECK-NEXT: %l_repaired = diagram.map (%sum = %l_before : {{.*}}, %factor = %moved :
// CHECK: %l_new_3 = diagram.map (%l_repaired_1 = %l_repaired : {{.*}}, %l_new_4 = %l_new_1 :
// CHECK-NEXT: %{{[0-9]+}} = arith.addf %l_repaired_1, %l_new_4 : f32
// CHECK: %O = cuda.warpgroup_wait %O_started pending 0
// CHECK-NEXT: %O_repaired = diagram.map (%sum = %O : {{.*}}, %factor = %moved :
// CHECK: scf.yield %m_kept, %l_new_3, %O_repaired, %P16_1, %offset_1
// CHECK-NEXT: } {side_by_side = array<i64: 3>}
cuda.kernel @sums (%x: index) threads 256 shared 24576 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 8192 : !K
  %V_shared = cuda.shared at 16384 : !V
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %m_none = diagram.fill 0xFF800000 : f32 -> !m
    %l_none = diagram.fill 0.0 : f32 -> !m
    %O_none = diagram.fill 0.0 : f32 -> !o
    %P_none = diagram.fill 0.0 : f16 -> !p
    %m, %l, %O_sum, %P_last = scf.for %x0 = %zero to %x step %piece iter_args(%m_before = %m_none, %l_before = %l_none, %O_before = %O_none, %P_before = %P_none) -> (!m, !m, !o, !p) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
      %S = cuda.warpgroup_wait %S_started pending 1 : !s
      %m_new = diagram.reduce max %S over [x] into %m_before : !s -> !m
      %m_kept = diagram.map (%new = %m_new : !m, %before = %m_before : !m) -> !m {
        %growth = arith.subf %new, %before : f32
        %slack = arith.constant 8.0 : f32
        %is_near = arith.cmpf ole, %growth, %slack : f32
        %size = math.absf %before : f32
        %fine = arith.constant 8388608.0 : f32
        %is_fine = arith.cmpf olt, %size, %fine : f32
        %stays = arith.andi %is_near, %is_fine : i1
        %kept = arith.select %stays, %before, %new : f32
        diagram.yield %kept : f32
      }
      %offset = diagram.map (%kept = %m_kept : !m) -> !m {
        %slope = arith.constant 1.0 : f32
        %product = arith.mulf %kept, %slope : f32
        diagram.yield %product : f32
      }
      %P = diagram.map (%score = %S : !s, %from = %offset : !m) -> !s {
        %slope = arith.constant 1.0 : f32
        %less = arith.negf %from : f32
        %exponent = math.fma %score, %slope, %less : f32
        %power = math.exp2 %exponent : f32
        diagram.yield %power : f32
      }
      %moved = diagram.map (%before = %m_before : !m, %kept = %m_kept : !m) -> !m {
        %move = arith.subf %before, %kept : f32
        %factor = math.exp2 %move : f32
        diagram.yield %factor : f32
      }
      %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      %l_new = diagram.reduce add %P over [x] into %l_repaired {partial} : !s -> !m
      %P16 = diagram.cast %P : !s -> !p
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      scf.yield %m_kept, %l_new, %O_repaired, %P16 : !m, !m, !o, !p
    }
  }
}

// Scores and powers do not find room beside four more sums.

// CHECK-LABEL: cuda.kernel @wide
// CHECK-NOT: cuda.exceeds
cuda.kernel @wide (%x: index) threads 256 shared 24576 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 8192 : !K
  %V_shared = cuda.shared at 16384 : !V
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %m_none = diagram.fill 0xFF800000 : f32 -> !m
    %l_none = diagram.fill 0.0 : f32 -> !m
    %O_none = diagram.fill 0.0 : f32 -> !o
    %P_none = diagram.fill 0.0 : f16 -> !p
    %a0 = diagram.fill 0.0 : f32 -> !o
    %a1 = diagram.fill 0.0 : f32 -> !o
    %a2 = diagram.fill 0.0 : f32 -> !o
    %a3 = diagram.fill 0.0 : f32 -> !o
    %m, %l, %O_sum, %P_last, %b0_end, %b1_end, %b2_end, %b3_end = scf.for %x0 = %zero to %x step %piece iter_args(%m_before = %m_none, %l_before = %l_none, %O_before = %O_none, %P_before = %P_none, %b0 = %a0, %b1 = %a1, %b2 = %a2, %b3 = %a3) -> (!m, !m, !o, !p, !o, !o, !o, !o) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
      %S = cuda.warpgroup_wait %S_started pending 1 : !s
      %m_new = diagram.reduce max %S over [x] into %m_before : !s -> !m
      %m_kept = diagram.map (%new = %m_new : !m, %before = %m_before : !m) -> !m {
        %growth = arith.subf %new, %before : f32
        %slack = arith.constant 8.0 : f32
        %is_near = arith.cmpf ole, %growth, %slack : f32
        %size = math.absf %before : f32
        %fine = arith.constant 8388608.0 : f32
        %is_fine = arith.cmpf olt, %size, %fine : f32
        %stays = arith.andi %is_near, %is_fine : i1
        %kept = arith.select %stays, %before, %new : f32
        diagram.yield %kept : f32
      }
      %offset = diagram.map (%kept = %m_kept : !m) -> !m {
        %slope = arith.constant 1.0 : f32
        %product = arith.mulf %kept, %slope : f32
        diagram.yield %product : f32
      }
      %P = diagram.map (%score = %S : !s, %from = %offset : !m) -> !s {
        %slope = arith.constant 1.0 : f32
        %less = arith.negf %from : f32
        %exponent = math.fma %score, %slope, %less : f32
        %power = math.exp2 %exponent : f32
        diagram.yield %power : f32
      }
      %moved = diagram.map (%before = %m_before : !m, %kept = %m_kept : !m) -> !m {
        %move = arith.subf %before, %kept : f32
        %factor = math.exp2 %move : f32
        diagram.yield %factor : f32
      }
      %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      %l_new = diagram.reduce add %P over [x] into %l_repaired {partial} : !s -> !m
      %P16 = diagram.cast %P : !s -> !p
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      scf.yield %m_kept, %l_new, %O_repaired, %P16, %b0, %b1, %b2, %b3 : !m, !m, !o, !p, !o, !o, !o, !o
    }
  }
}

// All products are awaited before the maximum: nothing runs meanwhile.

// CHECK-LABEL: cuda.kernel @awaited
// CHECK-NOT: cuda.exceeds
cuda.kernel @awaited (%x: index) threads 256 shared 24576 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 8192 : !K
  %V_shared = cuda.shared at 16384 : !V
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %m_none = diagram.fill 0xFF800000 : f32 -> !m
    %l_none = diagram.fill 0.0 : f32 -> !m
    %O_none = diagram.fill 0.0 : f32 -> !o
    %P_none = diagram.fill 0.0 : f16 -> !p
    %m, %l, %O_sum, %P_last = scf.for %x0 = %zero to %x step %piece iter_args(%m_before = %m_none, %l_before = %l_none, %O_before = %O_none, %P_before = %P_none) -> (!m, !m, !o, !p) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
      %S = cuda.warpgroup_wait %S_started pending 1 : !s
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      %m_new = diagram.reduce max %S over [x] into %m_before : !s -> !m
      %m_kept = diagram.map (%new = %m_new : !m, %before = %m_before : !m) -> !m {
        %growth = arith.subf %new, %before : f32
        %slack = arith.constant 8.0 : f32
        %is_near = arith.cmpf ole, %growth, %slack : f32
        %size = math.absf %before : f32
        %fine = arith.constant 8388608.0 : f32
        %is_fine = arith.cmpf olt, %size, %fine : f32
        %stays = arith.andi %is_near, %is_fine : i1
        %kept = arith.select %stays, %before, %new : f32
        diagram.yield %kept : f32
      }
      %offset = diagram.map (%kept = %m_kept : !m) -> !m {
        %slope = arith.constant 1.0 : f32
        %product = arith.mulf %kept, %slope : f32
        diagram.yield %product : f32
      }
      %P = diagram.map (%score = %S : !s, %from = %offset : !m) -> !s {
        %slope = arith.constant 1.0 : f32
        %less = arith.negf %from : f32
        %exponent = math.fma %score, %slope, %less : f32
        %power = math.exp2 %exponent : f32
        diagram.yield %power : f32
      }
      %moved = diagram.map (%before = %m_before : !m, %kept = %m_kept : !m) -> !m {
        %move = arith.subf %before, %kept : f32
        %factor = math.exp2 %move : f32
        diagram.yield %factor : f32
      }
      %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      %l_new = diagram.reduce add %P over [x] into %l_repaired {partial} : !s -> !m
      %P16 = diagram.cast %P : !s -> !p
      %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      scf.yield %m_kept, %l_new, %O_repaired, %P16 : !m, !m, !o, !p
    }
  }
}

// The maximum of a row is of scores that several warps hold.

// CHECK-LABEL: cuda.kernel @across
// CHECK-NOT: cuda.exceeds
cuda.kernel @across (%x: index) threads 256 shared 24576 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 8192 : !K
  %V_shared = cuda.shared at 16384 : !V
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %m_none = diagram.fill 0xFF800000 : f32 -> !m
    %l_none = diagram.fill 0.0 : f32 -> !m
    %O_none = diagram.fill 0.0 : f32 -> !o
    %P_none = diagram.fill 0.0 : f16 -> !p
    %m, %l, %O_sum, %P_last = scf.for %x0 = %zero to %x step %piece iter_args(%m_before = %m_none, %l_before = %l_none, %O_before = %O_none, %P_before = %P_none) -> (!m, !m, !o, !p) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
      %S = cuda.warpgroup_wait %S_started pending 1 : !s
      %T = diagram.fill 0.0 : f32 -> !t
      %m_new = diagram.reduce max %T over [x] into %m_before : !t -> !m
      %m_kept = diagram.map (%new = %m_new : !m, %before = %m_before : !m) -> !m {
        %growth = arith.subf %new, %before : f32
        %slack = arith.constant 8.0 : f32
        %is_near = arith.cmpf ole, %growth, %slack : f32
        %size = math.absf %before : f32
        %fine = arith.constant 8388608.0 : f32
        %is_fine = arith.cmpf olt, %size, %fine : f32
        %stays = arith.andi %is_near, %is_fine : i1
        %kept = arith.select %stays, %before, %new : f32
        diagram.yield %kept : f32
      }
      %offset = diagram.map (%kept = %m_kept : !m) -> !m {
        %slope = arith.constant 1.0 : f32
        %product = arith.mulf %kept, %slope : f32
        diagram.yield %product : f32
      }
      %P = diagram.map (%score = %S : !s, %from = %offset : !m) -> !s {
        %slope = arith.constant 1.0 : f32
        %less = arith.negf %from : f32
        %exponent = math.fma %score, %slope, %less : f32
        %power = math.exp2 %exponent : f32
        diagram.yield %power : f32
      }
      %moved = diagram.map (%before = %m_before : !m, %kept = %m_kept : !m) -> !m {
        %move = arith.subf %before, %kept : f32
        %factor = math.exp2 %move : f32
        diagram.yield %factor : f32
      }
      %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      %l_new = diagram.reduce add %P over [x] into %l_repaired {partial} : !s -> !m
      %P16 = diagram.cast %P : !s -> !p
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      scf.yield %m_kept, %l_new, %O_repaired, %P16 : !m, !m, !o, !p
    }
  }
}

// Offsets are of another slope than powers: what these grow to says nothing of the maximum.

// CHECK-LABEL: cuda.kernel @steeper
// CHECK-NOT: cuda.exceeds
cuda.kernel @steeper (%x: index) threads 256 shared 24576 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 8192 : !K
  %V_shared = cuda.shared at 16384 : !V
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %m_none = diagram.fill 0xFF800000 : f32 -> !m
    %l_none = diagram.fill 0.0 : f32 -> !m
    %O_none = diagram.fill 0.0 : f32 -> !o
    %P_none = diagram.fill 0.0 : f16 -> !p
    %m, %l, %O_sum, %P_last = scf.for %x0 = %zero to %x step %piece iter_args(%m_before = %m_none, %l_before = %l_none, %O_before = %O_none, %P_before = %P_none) -> (!m, !m, !o, !p) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
      %S = cuda.warpgroup_wait %S_started pending 1 : !s
      %m_new = diagram.reduce max %S over [x] into %m_before : !s -> !m
      %m_kept = diagram.map (%new = %m_new : !m, %before = %m_before : !m) -> !m {
        %growth = arith.subf %new, %before : f32
        %slack = arith.constant 8.0 : f32
        %is_near = arith.cmpf ole, %growth, %slack : f32
        %size = math.absf %before : f32
        %fine = arith.constant 8388608.0 : f32
        %is_fine = arith.cmpf olt, %size, %fine : f32
        %stays = arith.andi %is_near, %is_fine : i1
        %kept = arith.select %stays, %before, %new : f32
        diagram.yield %kept : f32
      }
      %offset = diagram.map (%kept = %m_kept : !m) -> !m {
        %slope = arith.constant 2.0 : f32
        %product = arith.mulf %kept, %slope : f32
        diagram.yield %product : f32
      }
      %P = diagram.map (%score = %S : !s, %from = %offset : !m) -> !s {
        %slope = arith.constant 1.0 : f32
        %less = arith.negf %from : f32
        %exponent = math.fma %score, %slope, %less : f32
        %power = math.exp2 %exponent : f32
        diagram.yield %power : f32
      }
      %moved = diagram.map (%before = %m_before : !m, %kept = %m_kept : !m) -> !m {
        %move = arith.subf %before, %kept : f32
        %factor = math.exp2 %move : f32
        diagram.yield %factor : f32
      }
      %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      %l_new = diagram.reduce add %P over [x] into %l_repaired {partial} : !s -> !m
      %P16 = diagram.cast %P : !s -> !p
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      scf.yield %m_kept, %l_new, %O_repaired, %P16 : !m, !m, !o, !p
    }
  }
}

// Scores are added up, not powers.

// CHECK-LABEL: cuda.kernel @sum_of_scores
// CHECK-NOT: cuda.exceeds
cuda.kernel @sum_of_scores (%x: index) threads 256 shared 24576 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 8192 : !K
  %V_shared = cuda.shared at 16384 : !V
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %m_none = diagram.fill 0xFF800000 : f32 -> !m
    %l_none = diagram.fill 0.0 : f32 -> !m
    %O_none = diagram.fill 0.0 : f32 -> !o
    %P_none = diagram.fill 0.0 : f16 -> !p
    %m, %l, %O_sum, %P_last = scf.for %x0 = %zero to %x step %piece iter_args(%m_before = %m_none, %l_before = %l_none, %O_before = %O_none, %P_before = %P_none) -> (!m, !m, !o, !p) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
      %S = cuda.warpgroup_wait %S_started pending 1 : !s
      %m_new = diagram.reduce max %S over [x] into %m_before : !s -> !m
      %m_kept = diagram.map (%new = %m_new : !m, %before = %m_before : !m) -> !m {
        %growth = arith.subf %new, %before : f32
        %slack = arith.constant 8.0 : f32
        %is_near = arith.cmpf ole, %growth, %slack : f32
        %size = math.absf %before : f32
        %fine = arith.constant 8388608.0 : f32
        %is_fine = arith.cmpf olt, %size, %fine : f32
        %stays = arith.andi %is_near, %is_fine : i1
        %kept = arith.select %stays, %before, %new : f32
        diagram.yield %kept : f32
      }
      %offset = diagram.map (%kept = %m_kept : !m) -> !m {
        %slope = arith.constant 1.0 : f32
        %product = arith.mulf %kept, %slope : f32
        diagram.yield %product : f32
      }
      %P = diagram.map (%score = %S : !s, %from = %offset : !m) -> !s {
        %slope = arith.constant 1.0 : f32
        %less = arith.negf %from : f32
        %exponent = math.fma %score, %slope, %less : f32
        %power = math.exp2 %exponent : f32
        diagram.yield %power : f32
      }
      %moved = diagram.map (%before = %m_before : !m, %kept = %m_kept : !m) -> !m {
        %move = arith.subf %before, %kept : f32
        %factor = math.exp2 %move : f32
        diagram.yield %factor : f32
      }
      %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      %l_new = diagram.reduce add %S over [x] into %l_repaired {partial} : !s -> !m
      %P16 = diagram.cast %P : !s -> !p
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      scf.yield %m_kept, %l_new, %O_repaired, %P16 : !m, !m, !o, !p
    }
  }
}

// Two maxima lag.

// CHECK-LABEL: cuda.kernel @two
// CHECK-NOT: cuda.exceeds
cuda.kernel @two (%x: index) threads 256 shared 24576 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 8192 : !K
  %V_shared = cuda.shared at 16384 : !V
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %m_none = diagram.fill 0xFF800000 : f32 -> !m
    %l_none = diagram.fill 0.0 : f32 -> !m
    %O_none = diagram.fill 0.0 : f32 -> !o
    %P_none = diagram.fill 0.0 : f16 -> !p
    %m, %l, %O_sum, %P_last, %n_before_end = scf.for %x0 = %zero to %x step %piece iter_args(%m_before = %m_none, %l_before = %l_none, %O_before = %O_none, %P_before = %P_none, %n_before = %m_none) -> (!m, !m, !o, !p, !m) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
      %S = cuda.warpgroup_wait %S_started pending 1 : !s
      %m_new = diagram.reduce max %S over [x] into %m_before : !s -> !m
      %m_kept = diagram.map (%new = %m_new : !m, %before = %m_before : !m) -> !m {
        %growth = arith.subf %new, %before : f32
        %slack = arith.constant 8.0 : f32
        %is_near = arith.cmpf ole, %growth, %slack : f32
        %size = math.absf %before : f32
        %fine = arith.constant 8388608.0 : f32
        %is_fine = arith.cmpf olt, %size, %fine : f32
        %stays = arith.andi %is_near, %is_fine : i1
        %kept = arith.select %stays, %before, %new : f32
        diagram.yield %kept : f32
      }
      %n_new = diagram.reduce max %S over [x] into %n_before : !s -> !m
      %n_kept = diagram.map (%new = %n_new : !m, %before = %n_before : !m) -> !m {
        %growth = arith.subf %new, %before : f32
        %slack = arith.constant 8.0 : f32
        %is_near = arith.cmpf ole, %growth, %slack : f32
        %size = math.absf %before : f32
        %fine = arith.constant 8388608.0 : f32
        %is_fine = arith.cmpf olt, %size, %fine : f32
        %stays = arith.andi %is_near, %is_fine : i1
        %kept = arith.select %stays, %before, %new : f32
        diagram.yield %kept : f32
      }
      %offset = diagram.map (%kept = %m_kept : !m) -> !m {
        %slope = arith.constant 1.0 : f32
        %product = arith.mulf %kept, %slope : f32
        diagram.yield %product : f32
      }
      %P = diagram.map (%score = %S : !s, %from = %offset : !m) -> !s {
        %slope = arith.constant 1.0 : f32
        %less = arith.negf %from : f32
        %exponent = math.fma %score, %slope, %less : f32
        %power = math.exp2 %exponent : f32
        diagram.yield %power : f32
      }
      %moved = diagram.map (%before = %m_before : !m, %kept = %m_kept : !m) -> !m {
        %move = arith.subf %before, %kept : f32
        %factor = math.exp2 %move : f32
        diagram.yield %factor : f32
      }
      %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      %l_new = diagram.reduce add %P over [x] into %l_repaired {partial} : !s -> !m
      %P16 = diagram.cast %P : !s -> !p
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      scf.yield %m_kept, %l_new, %O_repaired, %P16, %n_kept : !m, !m, !o, !p, !m
    }
  }
}

// A minimum lags.

// CHECK-LABEL: cuda.kernel @least
// CHECK-NOT: cuda.exceeds
cuda.kernel @least (%x: index) threads 256 shared 24576 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 8192 : !K
  %V_shared = cuda.shared at 16384 : !V
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %m_none = diagram.fill 0xFF800000 : f32 -> !m
    %l_none = diagram.fill 0.0 : f32 -> !m
    %O_none = diagram.fill 0.0 : f32 -> !o
    %P_none = diagram.fill 0.0 : f16 -> !p
    %m, %l, %O_sum, %P_last = scf.for %x0 = %zero to %x step %piece iter_args(%m_before = %m_none, %l_before = %l_none, %O_before = %O_none, %P_before = %P_none) -> (!m, !m, !o, !p) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
      %S = cuda.warpgroup_wait %S_started pending 1 : !s
      %m_new = diagram.reduce min %S over [x] into %m_before : !s -> !m
      %m_kept = diagram.map (%new = %m_new : !m, %before = %m_before : !m) -> !m {
        %growth = arith.subf %before, %new : f32
        %slack = arith.constant 8.0 : f32
        %is_near = arith.cmpf ole, %growth, %slack : f32
        %size = math.absf %before : f32
        %fine = arith.constant 8388608.0 : f32
        %is_fine = arith.cmpf olt, %size, %fine : f32
        %stays = arith.andi %is_near, %is_fine : i1
        %kept = arith.select %stays, %before, %new : f32
        diagram.yield %kept : f32
      }
      %offset = diagram.map (%kept = %m_kept : !m) -> !m {
        %slope = arith.constant 1.0 : f32
        %product = arith.mulf %kept, %slope : f32
        diagram.yield %product : f32
      }
      %P = diagram.map (%score = %S : !s, %from = %offset : !m) -> !s {
        %slope = arith.constant 1.0 : f32
        %less = arith.negf %from : f32
        %exponent = math.fma %score, %slope, %less : f32
        %power = math.exp2 %exponent : f32
        diagram.yield %power : f32
      }
      %moved = diagram.map (%before = %m_before : !m, %kept = %m_kept : !m) -> !m {
        %move = arith.subf %before, %kept : f32
        %factor = math.exp2 %move : f32
        diagram.yield %factor : f32
      }
      %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      %l_new = diagram.reduce add %P over [x] into %l_repaired {partial} : !s -> !m
      %P16 = diagram.cast %P : !s -> !p
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      scf.yield %m_kept, %l_new, %O_repaired, %P16 : !m, !m, !o, !p
    }
  }
}

// The maximum of each turn goes on, too, which a turn then has to know.

// CHECK-LABEL: cuda.kernel @known
// CHECK-NOT: cuda.exceeds
cuda.kernel @known (%x: index) threads 256 shared 24576 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 8192 : !K
  %V_shared = cuda.shared at 16384 : !V
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %m_none = diagram.fill 0xFF800000 : f32 -> !m
    %l_none = diagram.fill 0.0 : f32 -> !m
    %O_none = diagram.fill 0.0 : f32 -> !o
    %P_none = diagram.fill 0.0 : f16 -> !p
    %m, %l, %O_sum, %P_last, %n_before_end = scf.for %x0 = %zero to %x step %piece iter_args(%m_before = %m_none, %l_before = %l_none, %O_before = %O_none, %P_before = %P_none, %n_before = %m_none) -> (!m, !m, !o, !p, !m) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
      %S = cuda.warpgroup_wait %S_started pending 1 : !s
      %m_new = diagram.reduce max %S over [x] into %m_before : !s -> !m
      %m_kept = diagram.map (%new = %m_new : !m, %before = %m_before : !m) -> !m {
        %growth = arith.subf %new, %before : f32
        %slack = arith.constant 8.0 : f32
        %is_near = arith.cmpf ole, %growth, %slack : f32
        %size = math.absf %before : f32
        %fine = arith.constant 8388608.0 : f32
        %is_fine = arith.cmpf olt, %size, %fine : f32
        %stays = arith.andi %is_near, %is_fine : i1
        %kept = arith.select %stays, %before, %new : f32
        diagram.yield %kept : f32
      }
      %offset = diagram.map (%kept = %m_kept : !m) -> !m {
        %slope = arith.constant 1.0 : f32
        %product = arith.mulf %kept, %slope : f32
        diagram.yield %product : f32
      }
      %P = diagram.map (%score = %S : !s, %from = %offset : !m) -> !s {
        %slope = arith.constant 1.0 : f32
        %less = arith.negf %from : f32
        %exponent = math.fma %score, %slope, %less : f32
        %power = math.exp2 %exponent : f32
        diagram.yield %power : f32
      }
      %moved = diagram.map (%before = %m_before : !m, %kept = %m_kept : !m) -> !m {
        %move = arith.subf %before, %kept : f32
        %factor = math.exp2 %move : f32
        diagram.yield %factor : f32
      }
      %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      %l_new = diagram.reduce add %P over [x] into %l_repaired {partial} : !s -> !m
      %P16 = diagram.cast %P : !s -> !p
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      scf.yield %m_kept, %l_new, %O_repaired, %P16, %m_new : !m, !m, !o, !p, !m
    }
  }
}

// Nothing lags: the pass has nothing to say.

// CHECK-LABEL: cuda.kernel @behind
// CHECK-NOT: cuda.exceeds
cuda.kernel @behind (%x: index) threads 256 shared 24576 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 8192 : !K
  %V_shared = cuda.shared at 16384 : !V
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %m_none = diagram.fill 0xFF800000 : f32 -> !m
    %l_none = diagram.fill 0.0 : f32 -> !m
    %O_none = diagram.fill 0.0 : f32 -> !o
    %P_none = diagram.fill 0.0 : f16 -> !p
    %m, %l, %O_sum, %P_last = scf.for %x0 = %zero to %x step %piece iter_args(%m_before = %m_none, %l_before = %l_none, %O_before = %O_none, %P_before = %P_none) -> (!m, !m, !o, !p) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
      %S = cuda.warpgroup_wait %S_started pending 1 : !s
      %m_kept = diagram.reduce max %S over [x] into %m_before : !s -> !m
      %offset = diagram.map (%kept = %m_kept : !m) -> !m {
        %slope = arith.constant 1.0 : f32
        %product = arith.mulf %kept, %slope : f32
        diagram.yield %product : f32
      }
      %P = diagram.map (%score = %S : !s, %from = %offset : !m) -> !s {
        %slope = arith.constant 1.0 : f32
        %less = arith.negf %from : f32
        %exponent = math.fma %score, %slope, %less : f32
        %power = math.exp2 %exponent : f32
        diagram.yield %power : f32
      }
      %moved = diagram.map (%before = %m_before : !m, %kept = %m_kept : !m) -> !m {
        %move = arith.subf %before, %kept : f32
        %factor = math.exp2 %move : f32
        diagram.yield %factor : f32
      }
      %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      %l_new = diagram.reduce add %P over [x] into %l_repaired {partial} : !s -> !m
      %P16 = diagram.cast %P : !s -> !p
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      scf.yield %m_kept, %l_new, %O_repaired, %P16 : !m, !m, !o, !p
    }
  }
}

// What is told from twice the maximum is not one where that stays: it is told from what the turn before left. (Of
// so much shared memory a multiprocessor holds one block, whatever its registers.)

// CHECK-LABEL: cuda.kernel @twice (%x: index) threads 256 shared 122880 {
// CHECK: %moved = diagram.map (%before = %m_before : {{.*}}, %kept = %twice_1 :
// CHECK-NOT: %moved_one
cuda.kernel @twice (%x: index) threads 256 shared 122880 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 8192 : !K
  %V_shared = cuda.shared at 16384 : !V
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %m_none = diagram.fill 0xFF800000 : f32 -> !m
    %l_none = diagram.fill 0.0 : f32 -> !m
    %O_none = diagram.fill 0.0 : f32 -> !o
    %P_none = diagram.fill 0.0 : f16 -> !p
    %m, %l, %O_sum, %P_last = scf.for %x0 = %zero to %x step %piece iter_args(%m_before = %m_none, %l_before = %l_none, %O_before = %O_none, %P_before = %P_none) -> (!m, !m, !o, !p) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
      %S = cuda.warpgroup_wait %S_started pending 1 : !s
      %m_new = diagram.reduce max %S over [x] into %m_before : !s -> !m
      %m_kept = diagram.map (%new = %m_new : !m, %before = %m_before : !m) -> !m {
        %growth = arith.subf %new, %before : f32
        %slack = arith.constant 8.0 : f32
        %is_near = arith.cmpf ole, %growth, %slack : f32
        %size = math.absf %before : f32
        %fine = arith.constant 8388608.0 : f32
        %is_fine = arith.cmpf olt, %size, %fine : f32
        %stays = arith.andi %is_near, %is_fine : i1
        %kept = arith.select %stays, %before, %new : f32
        diagram.yield %kept : f32
      }
      %offset = diagram.map (%kept = %m_kept : !m) -> !m {
        %slope = arith.constant 1.0 : f32
        %product = arith.mulf %kept, %slope : f32
        diagram.yield %product : f32
      }
      %P = diagram.map (%score = %S : !s, %from = %offset : !m) -> !s {
        %slope = arith.constant 1.0 : f32
        %less = arith.negf %from : f32
        %exponent = math.fma %score, %slope, %less : f32
        %power = math.exp2 %exponent : f32
        diagram.yield %power : f32
      }
      %twice = diagram.map (%kept = %m_kept : !m) -> !m {
        %double = arith.addf %kept, %kept : f32
        diagram.yield %double : f32
      }
      %moved = diagram.map (%before = %m_before : !m, %kept = %twice : !m) -> !m {
        %move = arith.subf %before, %kept : f32
        %factor = math.exp2 %move : f32
        diagram.yield %factor : f32
      }
      %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      %l_new = diagram.reduce add %P over [x] into %l_repaired {partial} : !s -> !m
      %P16 = diagram.cast %P : !s -> !p
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      scf.yield %m_kept, %l_new, %O_repaired, %P16 : !m, !m, !o, !p
    }
  }
}

// The scores that it keeps would leave one block on a multiprocessor, which holds two without.

// CHECK-LABEL: cuda.kernel @crowded (%x: index) threads 256 shared 24576 {
// CHECK-NOT: cuda.exceeds
cuda.kernel @crowded (%x: index) threads 256 shared 24576 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 8192 : !K
  %V_shared = cuda.shared at 16384 : !V
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %m_none = diagram.fill 0xFF800000 : f32 -> !m
    %l_none = diagram.fill 0.0 : f32 -> !m
    %O_none = diagram.fill 0.0 : f32 -> !o
    %P_none = diagram.fill 0.0 : f16 -> !p
    %m, %l, %O_sum, %P_last = scf.for %x0 = %zero to %x step %piece iter_args(%m_before = %m_none, %l_before = %l_none, %O_before = %O_none, %P_before = %P_none) -> (!m, !m, !o, !p) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
      %S = cuda.warpgroup_wait %S_started pending 1 : !s
      %m_new = diagram.reduce max %S over [x] into %m_before : !s -> !m
      %m_kept = diagram.map (%new = %m_new : !m, %before = %m_before : !m) -> !m {
        %growth = arith.subf %new, %before : f32
        %slack = arith.constant 8.0 : f32
        %is_near = arith.cmpf ole, %growth, %slack : f32
        %size = math.absf %before : f32
        %fine = arith.constant 8388608.0 : f32
        %is_fine = arith.cmpf olt, %size, %fine : f32
        %stays = arith.andi %is_near, %is_fine : i1
        %kept = arith.select %stays, %before, %new : f32
        diagram.yield %kept : f32
      }
      %offset = diagram.map (%kept = %m_kept : !m) -> !m {
        %slope = arith.constant 1.0 : f32
        %product = arith.mulf %kept, %slope : f32
        diagram.yield %product : f32
      }
      %P = diagram.map (%score = %S : !s, %from = %offset : !m) -> !s {
        %slope = arith.constant 1.0 : f32
        %less = arith.negf %from : f32
        %exponent = math.fma %score, %slope, %less : f32
        %power = math.exp2 %exponent : f32
        diagram.yield %power : f32
      }
      %twice = diagram.map (%kept = %m_kept : !m) -> !m {
        %double = arith.addf %kept, %kept : f32
        diagram.yield %double : f32
      }
      %moved = diagram.map (%before = %m_before : !m, %kept = %twice : !m) -> !m {
        %move = arith.subf %before, %kept : f32
        %factor = math.exp2 %move : f32
        diagram.yield %factor : f32
      }
      %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      %l_new = diagram.reduce add %P over [x] into %l_repaired {partial} : !s -> !m
      %P16 = diagram.cast %P : !s -> !p
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      scf.yield %m_kept, %l_new, %O_repaired, %P16 : !m, !m, !o, !p
    }
  }
}

// Or would take more registers than the blocks that the kernel states leave.

// CHECK-LABEL: cuda.kernel @stated (%x: index) threads 256 shared 24576 resident 2 {
// CHECK-NOT: cuda.exceeds
cuda.kernel @stated (%x: index) threads 256 shared 24576 resident 2 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 8192 : !K
  %V_shared = cuda.shared at 16384 : !V
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %m_none = diagram.fill 0xFF800000 : f32 -> !m
    %l_none = diagram.fill 0.0 : f32 -> !m
    %O_none = diagram.fill 0.0 : f32 -> !o
    %P_none = diagram.fill 0.0 : f16 -> !p
    %m, %l, %O_sum, %P_last = scf.for %x0 = %zero to %x step %piece iter_args(%m_before = %m_none, %l_before = %l_none, %O_before = %O_none, %P_before = %P_none) -> (!m, !m, !o, !p) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
      %S = cuda.warpgroup_wait %S_started pending 1 : !s
      %m_new = diagram.reduce max %S over [x] into %m_before : !s -> !m
      %m_kept = diagram.map (%new = %m_new : !m, %before = %m_before : !m) -> !m {
        %growth = arith.subf %new, %before : f32
        %slack = arith.constant 8.0 : f32
        %is_near = arith.cmpf ole, %growth, %slack : f32
        %size = math.absf %before : f32
        %fine = arith.constant 8388608.0 : f32
        %is_fine = arith.cmpf olt, %size, %fine : f32
        %stays = arith.andi %is_near, %is_fine : i1
        %kept = arith.select %stays, %before, %new : f32
        diagram.yield %kept : f32
      }
      %offset = diagram.map (%kept = %m_kept : !m) -> !m {
        %slope = arith.constant 1.0 : f32
        %product = arith.mulf %kept, %slope : f32
        diagram.yield %product : f32
      }
      %P = diagram.map (%score = %S : !s, %from = %offset : !m) -> !s {
        %slope = arith.constant 1.0 : f32
        %less = arith.negf %from : f32
        %exponent = math.fma %score, %slope, %less : f32
        %power = math.exp2 %exponent : f32
        diagram.yield %power : f32
      }
      %twice = diagram.map (%kept = %m_kept : !m) -> !m {
        %double = arith.addf %kept, %kept : f32
        diagram.yield %double : f32
      }
      %moved = diagram.map (%before = %m_before : !m, %kept = %twice : !m) -> !m {
        %move = arith.subf %before, %kept : f32
        %factor = math.exp2 %move : f32
        diagram.yield %factor : f32
      }
      %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      %l_new = diagram.reduce add %P over [x] into %l_repaired {partial} : !s -> !m
      %P16 = diagram.cast %P : !s -> !p
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      scf.yield %m_kept, %l_new, %O_repaired, %P16 : !m, !m, !o, !p
    }
  }
}

// What powers subtract is used otherwise, too: minus infinity would not do there.

// CHECK-LABEL: cuda.kernel @used
// CHECK-NOT: cuda.exceeds
cuda.kernel @used (%x: index) threads 256 shared 24576 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 8192 : !K
  %V_shared = cuda.shared at 16384 : !V
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %m_none = diagram.fill 0xFF800000 : f32 -> !m
    %l_none = diagram.fill 0.0 : f32 -> !m
    %O_none = diagram.fill 0.0 : f32 -> !o
    %P_none = diagram.fill 0.0 : f16 -> !p
    %m, %l, %O_sum, %P_last, %f_before_end = scf.for %x0 = %zero to %x step %piece iter_args(%m_before = %m_none, %l_before = %l_none, %O_before = %O_none, %P_before = %P_none, %f_before = %l_none) -> (!m, !m, !o, !p, !m) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
      %S = cuda.warpgroup_wait %S_started pending 1 : !s
      %m_new = diagram.reduce max %S over [x] into %m_before : !s -> !m
      %m_kept = diagram.map (%new = %m_new : !m, %before = %m_before : !m) -> !m {
        %growth = arith.subf %new, %before : f32
        %slack = arith.constant 8.0 : f32
        %is_near = arith.cmpf ole, %growth, %slack : f32
        %size = math.absf %before : f32
        %fine = arith.constant 8388608.0 : f32
        %is_fine = arith.cmpf olt, %size, %fine : f32
        %stays = arith.andi %is_near, %is_fine : i1
        %kept = arith.select %stays, %before, %new : f32
        diagram.yield %kept : f32
      }
      %offset = diagram.map (%kept = %m_kept : !m) -> !m {
        %slope = arith.constant 1.0 : f32
        %product = arith.mulf %kept, %slope : f32
        diagram.yield %product : f32
      }
      %P = diagram.map (%score = %S : !s, %from = %offset : !m) -> !s {
        %slope = arith.constant 1.0 : f32
        %less = arith.negf %from : f32
        %exponent = math.fma %score, %slope, %less : f32
        %power = math.exp2 %exponent : f32
        diagram.yield %power : f32
      }
      %moved = diagram.map (%before = %m_before : !m, %kept = %m_kept : !m) -> !m {
        %move = arith.subf %before, %kept : f32
        %factor = math.exp2 %move : f32
        diagram.yield %factor : f32
      }
      %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      %l_new = diagram.reduce add %P over [x] into %l_repaired {partial} : !s -> !m
      %P16 = diagram.cast %P : !s -> !p
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      %f_new = diagram.map (%sum = %f_before : !m, %from = %offset : !m) -> !m {
        %total = arith.addf %sum, %from : f32
        diagram.yield %total : f32
      }
      scf.yield %m_kept, %l_new, %O_repaired, %P16, %f_new : !m, !m, !o, !p, !m
    }
  }
}

// An offset that is at least something does not tell how far scores are above the maximum.

// CHECK-LABEL: cuda.kernel @at_least
// CHECK-NOT: cuda.exceeds
cuda.kernel @at_least (%x: index) threads 256 shared 24576 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 8192 : !K
  %V_shared = cuda.shared at 16384 : !V
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %m_none = diagram.fill 0xFF800000 : f32 -> !m
    %l_none = diagram.fill 0.0 : f32 -> !m
    %O_none = diagram.fill 0.0 : f32 -> !o
    %P_none = diagram.fill 0.0 : f16 -> !p
    %m, %l, %O_sum, %P_last = scf.for %x0 = %zero to %x step %piece iter_args(%m_before = %m_none, %l_before = %l_none, %O_before = %O_none, %P_before = %P_none) -> (!m, !m, !o, !p) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
      %S = cuda.warpgroup_wait %S_started pending 1 : !s
      %m_new = diagram.reduce max %S over [x] into %m_before : !s -> !m
      %m_kept = diagram.map (%new = %m_new : !m, %before = %m_before : !m) -> !m {
        %growth = arith.subf %new, %before : f32
        %slack = arith.constant 8.0 : f32
        %is_near = arith.cmpf ole, %growth, %slack : f32
        %size = math.absf %before : f32
        %fine = arith.constant 8388608.0 : f32
        %is_fine = arith.cmpf olt, %size, %fine : f32
        %stays = arith.andi %is_near, %is_fine : i1
        %kept = arith.select %stays, %before, %new : f32
        diagram.yield %kept : f32
      }
      %safe = diagram.map (%kept = %m_kept : !m) -> !m {
        %least = arith.constant -4.0 : f32
        %safe = arith.maximumf %kept, %least : f32
        diagram.yield %safe : f32
      }
      %offset = diagram.map (%kept = %safe : !m) -> !m {
        %slope = arith.constant 1.0 : f32
        %product = arith.mulf %kept, %slope : f32
        diagram.yield %product : f32
      }
      %P = diagram.map (%score = %S : !s, %from = %offset : !m) -> !s {
        %slope = arith.constant 1.0 : f32
        %less = arith.negf %from : f32
        %exponent = math.fma %score, %slope, %less : f32
        %power = math.exp2 %exponent : f32
        diagram.yield %power : f32
      }
      %moved = diagram.map (%before = %m_before : !m, %kept = %m_kept : !m) -> !m {
        %move = arith.subf %before, %kept : f32
        %factor = math.exp2 %move : f32
        diagram.yield %factor : f32
      }
      %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      %l_new = diagram.reduce add %P over [x] into %l_repaired {partial} : !s -> !m
      %P16 = diagram.cast %P : !s -> !p
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      scf.yield %m_kept, %l_new, %O_repaired, %P16 : !m, !m, !o, !p
    }
  }
}

// One in which zero stands for a maximum that is minus infinity does, for no power is told from that.

// CHECK-LABEL: cuda.kernel @stood_for
// CHECK: %grown = cuda.exceeds %l_new limit 256.0
cuda.kernel @stood_for (%x: index) threads 256 shared 24576 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 8192 : !K
  %V_shared = cuda.shared at 16384 : !V
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %m_none = diagram.fill 0xFF800000 : f32 -> !m
    %l_none = diagram.fill 0.0 : f32 -> !m
    %O_none = diagram.fill 0.0 : f32 -> !o
    %P_none = diagram.fill 0.0 : f16 -> !p
    %m, %l, %O_sum, %P_last = scf.for %x0 = %zero to %x step %piece iter_args(%m_before = %m_none, %l_before = %l_none, %O_before = %O_none, %P_before = %P_none) -> (!m, !m, !o, !p) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
      %S = cuda.warpgroup_wait %S_started pending 1 : !s
      %m_new = diagram.reduce max %S over [x] into %m_before : !s -> !m
      %m_kept = diagram.map (%new = %m_new : !m, %before = %m_before : !m) -> !m {
        %growth = arith.subf %new, %before : f32
        %slack = arith.constant 8.0 : f32
        %is_near = arith.cmpf ole, %growth, %slack : f32
        %size = math.absf %before : f32
        %fine = arith.constant 8388608.0 : f32
        %is_fine = arith.cmpf olt, %size, %fine : f32
        %stays = arith.andi %is_near, %is_fine : i1
        %kept = arith.select %stays, %before, %new : f32
        diagram.yield %kept : f32
      }
      %safe = diagram.map (%kept = %m_kept : !m) -> !m {
        %none = arith.constant 0xFF800000 : f32
        %is_none = arith.cmpf oeq, %kept, %none : f32
        %other = arith.constant 0.0 : f32
        %safe = arith.select %is_none, %other, %kept : f32
        diagram.yield %safe : f32
      }
      %offset = diagram.map (%kept = %safe : !m) -> !m {
        %slope = arith.constant 1.0 : f32
        %product = arith.mulf %kept, %slope : f32
        diagram.yield %product : f32
      }
      %P = diagram.map (%score = %S : !s, %from = %offset : !m) -> !s {
        %slope = arith.constant 1.0 : f32
        %less = arith.negf %from : f32
        %exponent = math.fma %score, %slope, %less : f32
        %power = math.exp2 %exponent : f32
        diagram.yield %power : f32
      }
      %moved = diagram.map (%before = %m_before : !m, %kept = %m_kept : !m) -> !m {
        %move = arith.subf %before, %kept : f32
        %factor = math.exp2 %move : f32
        diagram.yield %factor : f32
      }
      %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      %l_new = diagram.reduce add %P over [x] into %l_repaired {partial} : !s -> !m
      %P16 = diagram.cast %P : !s -> !p
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      scf.yield %m_kept, %l_new, %O_repaired, %P16 : !m, !m, !o, !p
    }
  }
}

// If it stands for another number, powers of that are not told from the maximum.

// CHECK-LABEL: cuda.kernel @stands_for_four
// CHECK-NOT: cuda.exceeds
cuda.kernel @stands_for_four (%x: index) threads 256 shared 24576 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 8192 : !K
  %V_shared = cuda.shared at 16384 : !V
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %m_none = diagram.fill 0xFF800000 : f32 -> !m
    %l_none = diagram.fill 0.0 : f32 -> !m
    %O_none = diagram.fill 0.0 : f32 -> !o
    %P_none = diagram.fill 0.0 : f16 -> !p
    %m, %l, %O_sum, %P_last = scf.for %x0 = %zero to %x step %piece iter_args(%m_before = %m_none, %l_before = %l_none, %O_before = %O_none, %P_before = %P_none) -> (!m, !m, !o, !p) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
      %S = cuda.warpgroup_wait %S_started pending 1 : !s
      %m_new = diagram.reduce max %S over [x] into %m_before : !s -> !m
      %m_kept = diagram.map (%new = %m_new : !m, %before = %m_before : !m) -> !m {
        %growth = arith.subf %new, %before : f32
        %slack = arith.constant 8.0 : f32
        %is_near = arith.cmpf ole, %growth, %slack : f32
        %size = math.absf %before : f32
        %fine = arith.constant 8388608.0 : f32
        %is_fine = arith.cmpf olt, %size, %fine : f32
        %stays = arith.andi %is_near, %is_fine : i1
        %kept = arith.select %stays, %before, %new : f32
        diagram.yield %kept : f32
      }
      %safe = diagram.map (%kept = %m_kept : !m) -> !m {
        %none = arith.constant 4.0 : f32
        %is_none = arith.cmpf oeq, %kept, %none : f32
        %other = arith.constant 0.0 : f32
        %safe = arith.select %is_none, %other, %kept : f32
        diagram.yield %safe : f32
      }
      %offset = diagram.map (%kept = %safe : !m) -> !m {
        %slope = arith.constant 1.0 : f32
        %product = arith.mulf %kept, %slope : f32
        diagram.yield %product : f32
      }
      %P = diagram.map (%score = %S : !s, %from = %offset : !m) -> !s {
        %slope = arith.constant 1.0 : f32
        %less = arith.negf %from : f32
        %exponent = math.fma %score, %slope, %less : f32
        %power = math.exp2 %exponent : f32
        diagram.yield %power : f32
      }
      %moved = diagram.map (%before = %m_before : !m, %kept = %m_kept : !m) -> !m {
        %move = arith.subf %before, %kept : f32
        %factor = math.exp2 %move : f32
        diagram.yield %factor : f32
      }
      %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      %l_new = diagram.reduce add %P over [x] into %l_repaired {partial} : !s -> !m
      %P16 = diagram.cast %P : !s -> !p
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      scf.yield %m_kept, %l_new, %O_repaired, %P16 : !m, !m, !o, !p
    }
  }
}

// Only the few turns that a condition cuts are not rewritten where it leaves others whole.

// CHECK-LABEL: cuda.kernel @peeled
// CHECK: %grown = cuda.exceeds %l_new limit 256.0
// CHECK: scf.for %x1 = %zero to %piece step %piece
// CHECK-NOT: cuda.exceeds
cuda.kernel @peeled (%x: index) threads 256 shared 24576 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 8192 : !K
  %V_shared = cuda.shared at 16384 : !V
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %m_none = diagram.fill 0xFF800000 : f32 -> !m
    %l_none = diagram.fill 0.0 : f32 -> !m
    %O_none = diagram.fill 0.0 : f32 -> !o
    %P_none = diagram.fill 0.0 : f16 -> !p
    %m, %l, %O_sum, %P_last = scf.for %x0 = %zero to %x step %piece iter_args(%m_before = %m_none, %l_before = %l_none, %O_before = %O_none, %P_before = %P_none) -> (!m, !m, !o, !p) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
      %S = cuda.warpgroup_wait %S_started pending 1 : !s
      %m_new = diagram.reduce max %S over [x] into %m_before : !s -> !m
      %m_kept = diagram.map (%new = %m_new : !m, %before = %m_before : !m) -> !m {
        %growth = arith.subf %new, %before : f32
        %slack = arith.constant 8.0 : f32
        %is_near = arith.cmpf ole, %growth, %slack : f32
        %size = math.absf %before : f32
        %fine = arith.constant 8388608.0 : f32
        %is_fine = arith.cmpf olt, %size, %fine : f32
        %stays = arith.andi %is_near, %is_fine : i1
        %kept = arith.select %stays, %before, %new : f32
        diagram.yield %kept : f32
      }
      %offset = diagram.map (%kept = %m_kept : !m) -> !m {
        %slope = arith.constant 1.0 : f32
        %product = arith.mulf %kept, %slope : f32
        diagram.yield %product : f32
      }
      %P = diagram.map (%score = %S : !s, %from = %offset : !m) -> !s {
        %slope = arith.constant 1.0 : f32
        %less = arith.negf %from : f32
        %exponent = math.fma %score, %slope, %less : f32
        %power = math.exp2 %exponent : f32
        diagram.yield %power : f32
      }
      %moved = diagram.map (%before = %m_before : !m, %kept = %m_kept : !m) -> !m {
        %move = arith.subf %before, %kept : f32
        %factor = math.exp2 %move : f32
        diagram.yield %factor : f32
      }
      %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      %l_new = diagram.reduce add %P over [x] into %l_repaired {partial} : !s -> !m
      %P16 = diagram.cast %P : !s -> !p
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      scf.yield %m_kept, %l_new, %O_repaired, %P16 : !m, !m, !o, !p
    }
    %m_all, %l_all, %O_all, %P_all = scf.for %x1 = %zero to %piece step %piece iter_args(%m_before = %m, %l_before = %l, %O_before = %O_sum, %P_before = %P_last) -> (!m, !m, !o, !p) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
      %S = cuda.warpgroup_wait %S_started pending 1 : !s
      %S_cut = cuda.mask %S where x from %x1 < %x else 0xFF800000 : f32 : !s
      %m_new = diagram.reduce max %S_cut over [x] into %m_before : !s -> !m
      %m_kept = diagram.map (%new = %m_new : !m, %before = %m_before : !m) -> !m {
        %growth = arith.subf %new, %before : f32
        %slack = arith.constant 8.0 : f32
        %is_near = arith.cmpf ole, %growth, %slack : f32
        %size = math.absf %before : f32
        %fine = arith.constant 8388608.0 : f32
        %is_fine = arith.cmpf olt, %size, %fine : f32
        %stays = arith.andi %is_near, %is_fine : i1
        %kept = arith.select %stays, %before, %new : f32
        diagram.yield %kept : f32
      }
      %offset = diagram.map (%kept = %m_kept : !m) -> !m {
        %slope = arith.constant 1.0 : f32
        %product = arith.mulf %kept, %slope : f32
        diagram.yield %product : f32
      }
      %P = diagram.map (%score = %S_cut : !s, %from = %offset : !m) -> !s {
        %slope = arith.constant 1.0 : f32
        %less = arith.negf %from : f32
        %exponent = math.fma %score, %slope, %less : f32
        %power = math.exp2 %exponent : f32
        diagram.yield %power : f32
      }
      %moved = diagram.map (%before = %m_before : !m, %kept = %m_kept : !m) -> !m {
        %move = arith.subf %before, %kept : f32
        %factor = math.exp2 %move : f32
        diagram.yield %factor : f32
      }
      %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      %l_new = diagram.reduce add %P over [x] into %l_repaired {partial} : !s -> !m
      %P16 = diagram.cast %P : !s -> !p
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      scf.yield %m_kept, %l_new, %O_repaired, %P16 : !m, !m, !o, !p
    }
  }
}

// So it is where positions are compared element by element, of which whole turns need fewer comparisons.

// CHECK-LABEL: cuda.kernel @peeled_by_choice
// CHECK: %grown = cuda.exceeds %l_new limit 256.0
// CHECK: scf.for %x1 = %zero to %piece step %piece
// CHECK-NOT: cuda.exceeds
cuda.kernel @peeled_by_choice (%x: index) threads 256 shared 24576 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 8192 : !K
  %V_shared = cuda.shared at 16384 : !V
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %m_none = diagram.fill 0xFF800000 : f32 -> !m
    %l_none = diagram.fill 0.0 : f32 -> !m
    %O_none = diagram.fill 0.0 : f32 -> !o
    %P_none = diagram.fill 0.0 : f16 -> !p
    %m, %l, %O_sum, %P_last = scf.for %x0 = %zero to %x step %piece iter_args(%m_before = %m_none, %l_before = %l_none, %O_before = %O_none, %P_before = %P_none) -> (!m, !m, !o, !p) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
      %S = cuda.warpgroup_wait %S_started pending 1 : !s
      %at_x = cuda.index %x0 -> !at
      %S_cut = diagram.map (%score = %S : !s, %at = %at_x : !at) -> !s {
        %last = arith.constant 4096 : i32
        %is_there = arith.cmpi slt, %at, %last : i32
        %none = arith.constant 0xFF800000 : f32
        %kept_score = arith.select %is_there, %score, %none : f32
        diagram.yield %kept_score : f32
      }
      %m_new = diagram.reduce max %S_cut over [x] into %m_before : !s -> !m
      %m_kept = diagram.map (%new = %m_new : !m, %before = %m_before : !m) -> !m {
        %growth = arith.subf %new, %before : f32
        %slack = arith.constant 8.0 : f32
        %is_near = arith.cmpf ole, %growth, %slack : f32
        %size = math.absf %before : f32
        %fine = arith.constant 8388608.0 : f32
        %is_fine = arith.cmpf olt, %size, %fine : f32
        %stays = arith.andi %is_near, %is_fine : i1
        %kept = arith.select %stays, %before, %new : f32
        diagram.yield %kept : f32
      }
      %offset = diagram.map (%kept = %m_kept : !m) -> !m {
        %slope = arith.constant 1.0 : f32
        %product = arith.mulf %kept, %slope : f32
        diagram.yield %product : f32
      }
      %P = diagram.map (%score = %S_cut : !s, %from = %offset : !m) -> !s {
        %slope = arith.constant 1.0 : f32
        %less = arith.negf %from : f32
        %exponent = math.fma %score, %slope, %less : f32
        %power = math.exp2 %exponent : f32
        diagram.yield %power : f32
      }
      %moved = diagram.map (%before = %m_before : !m, %kept = %m_kept : !m) -> !m {
        %move = arith.subf %before, %kept : f32
        %factor = math.exp2 %move : f32
        diagram.yield %factor : f32
      }
      %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      %l_new = diagram.reduce add %P over [x] into %l_repaired {partial} : !s -> !m
      %P16 = diagram.cast %P : !s -> !p
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      scf.yield %m_kept, %l_new, %O_repaired, %P16 : !m, !m, !o, !p
    }
    %m_all, %l_all, %O_all, %P_all = scf.for %x1 = %zero to %piece step %piece iter_args(%m_before = %m, %l_before = %l, %O_before = %O_sum, %P_before = %P_last) -> (!m, !m, !o, !p) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
      %S = cuda.warpgroup_wait %S_started pending 1 : !s
      %at_x = cuda.index %x1 -> !at
      %S_cut = diagram.map (%score = %S : !s, %at = %at_x : !at) -> !s {
        %last = arith.constant 4096 : i32
        %is_there = arith.cmpi slt, %at, %last : i32
        %first = arith.constant 16 : i32
        %is_seen = arith.cmpi sge, %at, %first : i32
        %is_kept = arith.andi %is_there, %is_seen : i1
        %none = arith.constant 0xFF800000 : f32
        %kept_score = arith.select %is_kept, %score, %none : f32
        diagram.yield %kept_score : f32
      }
      %m_new = diagram.reduce max %S_cut over [x] into %m_before : !s -> !m
      %m_kept = diagram.map (%new = %m_new : !m, %before = %m_before : !m) -> !m {
        %growth = arith.subf %new, %before : f32
        %slack = arith.constant 8.0 : f32
        %is_near = arith.cmpf ole, %growth, %slack : f32
        %size = math.absf %before : f32
        %fine = arith.constant 8388608.0 : f32
        %is_fine = arith.cmpf olt, %size, %fine : f32
        %stays = arith.andi %is_near, %is_fine : i1
        %kept = arith.select %stays, %before, %new : f32
        diagram.yield %kept : f32
      }
      %offset = diagram.map (%kept = %m_kept : !m) -> !m {
        %slope = arith.constant 1.0 : f32
        %product = arith.mulf %kept, %slope : f32
        diagram.yield %product : f32
      }
      %P = diagram.map (%score = %S_cut : !s, %from = %offset : !m) -> !s {
        %slope = arith.constant 1.0 : f32
        %less = arith.negf %from : f32
        %exponent = math.fma %score, %slope, %less : f32
        %power = math.exp2 %exponent : f32
        diagram.yield %power : f32
      }
      %moved = diagram.map (%before = %m_before : !m, %kept = %m_kept : !m) -> !m {
        %move = arith.subf %before, %kept : f32
        %factor = math.exp2 %move : f32
        diagram.yield %factor : f32
      }
      %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      %l_new = diagram.reduce add %P over [x] into %l_repaired {partial} : !s -> !m
      %P16 = diagram.cast %P : !s -> !p
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      scf.yield %m_kept, %l_new, %O_repaired, %P16 : !m, !m, !o, !p
    }
  }
}

// If a condition is tested in every turn, these are all there are.

// CHECK-LABEL: cuda.kernel @cut
// CHECK: %S_cut = cuda.mask %S where x from %x0 < %x
// CHECK-NEXT: %P = diagram.map (%score = %S_cut : {{.*}}, %from = %offset_kept_1 :
// CHECK: %grown = cuda.exceeds %l_new limit 256.0
// CHECK: %m_new = diagram.reduce max %S_cut over [x] into %m_before
cuda.kernel @cut (%x: index) threads 256 shared 24576 {
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 8192 : !K
  %V_shared = cuda.shared at 16384 : !V
  cuda.roles registers 0, 0 producer {
  } consumers 1 {
    %m_none = diagram.fill 0xFF800000 : f32 -> !m
    %l_none = diagram.fill 0.0 : f32 -> !m
    %O_none = diagram.fill 0.0 : f32 -> !o
    %P_none = diagram.fill 0.0 : f16 -> !p
    %m, %l, %O_sum, %P_last = scf.for %x0 = %zero to %x step %piece iter_args(%m_before = %m_none, %l_before = %l_none, %O_before = %O_none, %P_before = %P_none) -> (!m, !m, !o, !p) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
      %S = cuda.warpgroup_wait %S_started pending 1 : !s
      %S_cut = cuda.mask %S where x from %x0 < %x else 0xFF800000 : f32 : !s
      %m_new = diagram.reduce max %S_cut over [x] into %m_before : !s -> !m
      %m_kept = diagram.map (%new = %m_new : !m, %before = %m_before : !m) -> !m {
        %growth = arith.subf %new, %before : f32
        %slack = arith.constant 8.0 : f32
        %is_near = arith.cmpf ole, %growth, %slack : f32
        %size = math.absf %before : f32
        %fine = arith.constant 8388608.0 : f32
        %is_fine = arith.cmpf olt, %size, %fine : f32
        %stays = arith.andi %is_near, %is_fine : i1
        %kept = arith.select %stays, %before, %new : f32
        diagram.yield %kept : f32
      }
      %offset = diagram.map (%kept = %m_kept : !m) -> !m {
        %slope = arith.constant 1.0 : f32
        %product = arith.mulf %kept, %slope : f32
        diagram.yield %product : f32
      }
      %P = diagram.map (%score = %S_cut : !s, %from = %offset : !m) -> !s {
        %slope = arith.constant 1.0 : f32
        %less = arith.negf %from : f32
        %exponent = math.fma %score, %slope, %less : f32
        %power = math.exp2 %exponent : f32
        diagram.yield %power : f32
      }
      %moved = diagram.map (%before = %m_before : !m, %kept = %m_kept : !m) -> !m {
        %move = arith.subf %before, %kept : f32
        %factor = math.exp2 %move : f32
        diagram.yield %factor : f32
      }
      %l_repaired = diagram.map (%sum = %l_before : !m, %factor = %moved : !m) -> !m {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      %l_new = diagram.reduce add %P over [x] into %l_repaired {partial} : !s -> !m
      %P16 = diagram.cast %P : !s -> !p
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      %O_repaired = diagram.map (%sum = %O : !o, %factor = %moved : !m) -> !o attributes {diagram.skips_ones} {
        %product = arith.mulf %sum, %factor : f32
        diagram.yield %product : f32
      }
      scf.yield %m_kept, %l_new, %O_repaired, %P16 : !m, !m, !o, !p
    }
  }
}

// CHECK: #hierarchy.step<"cuda-speculate", "@sums", "powers whose sum is within the slack are told from a maximum within the slack", "%P before %m_new is known, again where a lane's sum is above 256; 126 registers, 2 blocks on an SM">
// CHECK-SAME: #hierarchy.step<"decline cuda-speculate", "@wide", "a turn's scores stay until its powers are known", "254 registers of a thread, which has 248">
// CHECK-SAME: #hierarchy.step<"decline cuda-speculate", "@awaited", "products run meanwhile", "no product of warpgroups runs while %m_new is awaited">
// CHECK-SAME: #hierarchy.step<"decline cuda-speculate", "@across", "a warp finds a maximum by itself", "%m_new is of several warps">
// CHECK-SAME: #hierarchy.step<"decline cuda-speculate", "@steeper", "a sum of powers says how large they are", "none is of powers that are told from %m_new">
// CHECK-SAME: #hierarchy.step<"decline cuda-speculate", "@sum_of_scores", "a sum of powers says how large they are", "none is of powers that are told from %m_new">
// CHECK-SAME: #hierarchy.step<"decline cuda-speculate", "@two", "one maximum lags", "2 extrema do, %m_new first">
// CHECK-SAME: #hierarchy.step<"decline cuda-speculate", "@least", "one maximum lags", "%m_new is a minimum">
// CHECK-SAME: #hierarchy.step<"decline cuda-speculate", "@known", "the stream keeps a maximum that lags", "%m_new itself is used">
// CHECK-SAME: #hierarchy.step<"cuda-speculate", "@twice", "powers whose sum is within the slack are told from a maximum within the slack", "%P before %m_new is known, again where a lane's sum is above 256; 130 registers">
// CHECK-SAME: #hierarchy.step<"decline cuda-speculate", "@crowded", "a multiprocessor holds as many blocks", "130 registers of a thread leave 1, and 110 leave 2">
// CHECK-SAME: #hierarchy.step<"decline cuda-speculate", "@stated", "a turn's scores stay until its powers are known", "130 registers of a thread, which has 128">
// CHECK-SAME: #hierarchy.step<"decline cuda-speculate", "@used", "only powers are told from what they subtract", "%offset is used otherwise">
// CHECK-SAME: #hierarchy.step<"decline cuda-speculate", "@at_least", "a sum of powers says how large they are", "none is of powers that are told from %m_new">
// CHECK-SAME: #hierarchy.step<"cuda-speculate", "@stood_for", "powers whose sum is within the slack are told from a maximum within the slack", "%P before %m_new is known, again where a lane's sum is above 256; 126 registers, 2 blocks on an SM">
// CHECK-SAME: #hierarchy.step<"decline cuda-speculate", "@stands_for_four", "a sum of powers says how large they are", "none is of powers that are told from %m_new">
// CHECK-SAME: #hierarchy.step<"cuda-speculate", "@peeled", "powers whose sum is within the slack are told from a maximum within the slack", "%P before %m_new is known, again where a lane's sum is above 256; 126 registers, 2 blocks on an SM">
// CHECK-SAME: #hierarchy.step<"decline cuda-speculate", "@peeled", "turns that conditions cut are few where they are peeled", "%S_cut has absent elements in each turn of its loop">
// CHECK-SAME: #hierarchy.step<"cuda-speculate", "@peeled_by_choice", "powers whose sum is within the slack are told from a maximum within the slack", "%P before %m_new is known, again where a lane's sum is above 256; 126 registers, 2 blocks on an SM">
// CHECK-SAME: #hierarchy.step<"decline cuda-speculate", "@peeled_by_choice", "turns that conditions cut are few where they are peeled", "%S_cut has absent elements in each turn of its loop">
// CHECK-SAME: #hierarchy.step<"cuda-speculate", "@cut", "powers whose sum is within the slack are told from a maximum within the slack", "%P before %m_new is known, again where a lane's sum is above 256; 126 registers, 2 blocks on an SM">
func.func @host(%x: index) {
  cuda.launch @sums grid %x aligned %x (%x) : index
  cuda.launch @wide grid %x aligned %x (%x) : index
  cuda.launch @awaited grid %x aligned %x (%x) : index
  cuda.launch @across grid %x aligned %x (%x) : index
  cuda.launch @steeper grid %x aligned %x (%x) : index
  cuda.launch @sum_of_scores grid %x aligned %x (%x) : index
  cuda.launch @two grid %x aligned %x (%x) : index
  cuda.launch @least grid %x aligned %x (%x) : index
  cuda.launch @known grid %x aligned %x (%x) : index
  cuda.launch @behind grid %x aligned %x (%x) : index
  cuda.launch @twice grid %x aligned %x (%x) : index
  cuda.launch @crowded grid %x aligned %x (%x) : index
  cuda.launch @stated grid %x aligned %x (%x) : index
  cuda.launch @used grid %x aligned %x (%x) : index
  cuda.launch @at_least grid %x aligned %x (%x) : index
  cuda.launch @stood_for grid %x aligned %x (%x) : index
  cuda.launch @stands_for_four grid %x aligned %x (%x) : index
  cuda.launch @peeled grid %x aligned %x (%x) : index
  cuda.launch @peeled_by_choice grid %x aligned %x (%x) : index
  cuda.launch @cut grid %x aligned %x (%x) : index
  func.return
}
