// RUN: xdsl-opt -p 'set-machine{name=h100},cuda-ping-pong' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},cuda-ping-pong{turns=false}' %s | filecheck %s --check-prefix=NEVER
// RUN: xdsl-opt -p 'set-machine{name=h100},cuda-ping-pong{turns=true}' %s | filecheck %s --check-prefix=ALWAYS
// RUN: xdsl-opt -p 'set-machine{name=h100},cuda-ping-pong{kernel=little turns=true}' %s | filecheck %s --check-prefix=ONE

#scores = #cuda.layout<register = [x:8:8, q:2:8, x:2:1], lane = [q:8:1, x:4:2], warp = [q:8:16]>
#sums = #cuda.layout<register = [q:2:8], lane = [q:8:1, 4], warp = [q:8:16]>
!Q = memref<128x64xf16, #diagram.array<[q, d], level = shared, layout = #cuda.boxes<extents = [128, 64], span = 64>>>
!K = memref<64x64xf16, #diagram.array<[x, d], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
!s = tensor<128x64xf32, #diagram.array<[q, x], level = register, layout = #scores>>
!l = tensor<128xf32, #diagram.array<[q], level = register, layout = #sums>>
!p = tensor<128x64xf16, #diagram.array<[q, x], level = register, layout = #cuda.layout<register = [x:4:16, x:2:8, q:2:8, x:2:1], lane = [q:8:1, x:4:2], warp = [q:8:16]>>>
!V = memref<64x64xf16, #diagram.array<[x, e], level = shared, layout = #cuda.boxes<extents = [64, 64], span = 64>>>
!o = tensor<128x64xf32, #diagram.array<[q, e], level = register, layout = #cuda.layout<register = [e:8:8, q:2:8, e:2:1], lane = [q:8:1, e:4:2], warp = [q:8:16]>>>

// ONE-LABEL: cuda.kernel @sums
// ONE-NOT: cuda.order_
// ONE-LABEL: cuda.kernel @little
// ONE: cuda.order_begin
// ONE-LABEL: cuda.kernel @products
// ONE-NOT: cuda.order_

// NEVER-NOT: cuda.order_
// NEVER-NOT: cuda-ping-pong

// What a step starts, it starts in its turn; what it computes, it computes while the other warpgroup has the turn.

// CHECK-LABEL: cuda.kernel @sums
// CHECK: consumers 2 {
// CHECK-NEXT: cuda.order_begin
// CHECK-NEXT: %none = diagram.fill
// CHECK-NEXT: scf.for %x0 = %zero to %x step %piece
// CHECK-NEXT: cuda.order_wait
// CHECK-NEXT: %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d]
// CHECK-NEXT: cuda.order_arrive
// CHECK-NEXT: %S = cuda.warpgroup_wait %S_started pending 0
// CHECK: scf.yield %l_new
// CHECK-NEXT: }
// CHECK-NEXT: cuda.order_end
// CHECK-NEXT: }
cuda.kernel @sums (%x: index) threads 384 shared 24576 {
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 16384 : !K
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  cuda.roles registers 0, 0 producer {
  } consumers 2 {
    %none = diagram.fill 0.000000e+00 : f32 -> !l
    %l = scf.for %x0 = %zero to %x step %piece iter_args(%l_so_far = %none) -> (!l) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %S = cuda.warpgroup_wait %S_started pending 0 : !s
      %P = diagram.map (%score = %S : !s) -> !s {
        %power = math.exp2 %score : f32
        diagram.yield %power : f32
      }
      %l_new = diagram.reduce add %P over [x] into %l_so_far {partial} : !s -> !l
      scf.yield %l_new : !l
    }
  }
}

// Two products that are started one after the other are one run; the exponentials of the step stand between that and the
// next.

// CHECK-LABEL: cuda.kernel @together
// CHECK: cuda.order_begin
// CHECK: scf.for %x0 = %zero to %x step %piece
// CHECK-NEXT: cuda.order_wait
// CHECK-NEXT: %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d]
// CHECK-NEXT: %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x]
// CHECK-NEXT: cuda.order_arrive
// CHECK-NEXT: %S = cuda.warpgroup_wait %S_started pending 1
// CHECK-NOT: cuda.order_wait
// CHECK: cuda.order_end
// CHECK-NEXT: }
cuda.kernel @together (%x: index) threads 384 shared 32768 {
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 16384 : !K
  %V_shared = cuda.shared at 24576 : !V
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  cuda.roles registers 0, 0 producer {
  } consumers 2 {
    %O_none = diagram.fill 0.000000e+00 : f32 -> !o
    %P_none = diagram.fill 0.000000e+00 : f16 -> !p
    %O_sum, %P_last = scf.for %x0 = %zero to %x step %piece iter_args(%O_before = %O_none, %P_before = %P_none) -> (!o, !p) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %O_started = cuda.warpgroup_product %P_before, %V_shared into %O_before over [x] : !p, !V -> !o
      %S = cuda.warpgroup_wait %S_started pending 1 : !s
      %P = diagram.map (%score = %S : !s) -> !s {
        %power = math.exp2 %score : f32
        diagram.yield %power : f32
      }
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      %P16 = diagram.cast %P : !s -> !p
      scf.yield %O, %P16 : !o, !p
    }
  }
}

// The last product of a step and the first of the next are one run: the turn is taken before the loop, handed on after the
// first product, and taken again before the last.

// CHECK-LABEL: cuda.kernel @around
// CHECK: cuda.order_begin
// CHECK-NEXT: %O_none = diagram.fill
// CHECK-NEXT: cuda.order_wait
// CHECK-NEXT: scf.for %x0 = %zero to %x step %piece
// CHECK-NEXT: %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d]
// CHECK-NEXT: cuda.order_arrive
// CHECK-NEXT: %S = cuda.warpgroup_wait %S_started pending 0
// CHECK: %P16 = diagram.cast %P
// CHECK-NEXT: cuda.order_wait
// CHECK-NEXT: %O_started = cuda.warpgroup_product %P16, %V_shared into %O_before over [x]
// CHECK-NEXT: %O = cuda.warpgroup_wait %O_started pending 0
// CHECK-NEXT: scf.yield %O
// CHECK-NEXT: }
// CHECK-NEXT: cuda.order_arrive
// CHECK-NEXT: cuda.order_end
cuda.kernel @around (%x: index) threads 384 shared 32768 {
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 16384 : !K
  %V_shared = cuda.shared at 24576 : !V
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  cuda.roles registers 0, 0 producer {
  } consumers 2 {
    %O_none = diagram.fill 0.000000e+00 : f32 -> !o
    %O_sum = scf.for %x0 = %zero to %x step %piece iter_args(%O_before = %O_none) -> (!o) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared over [d] : !Q, !K -> !s
      %S = cuda.warpgroup_wait %S_started pending 0 : !s
      %P = diagram.map (%score = %S : !s) -> !s {
        %power = math.exp2 %score : f32
        diagram.yield %power : f32
      }
      %P16 = diagram.cast %P : !s -> !p
      %O_started = cuda.warpgroup_product %P16, %V_shared into %O_before over [x] : !p, !V -> !o
      %O = cuda.warpgroup_wait %O_started pending 0 : !o
      scf.yield %O : !o
    }
  }
}

// Little is computed beside the product: taking turns is for who asks for it.

// CHECK-LABEL: cuda.kernel @little
// CHECK-NOT: cuda.order_
// CHECK-LABEL: cuda.kernel @products
// CHECK-NOT: cuda.order_
// ALWAYS-LABEL: cuda.kernel @little
// ALWAYS: cuda.order_begin
// ALWAYS: cuda.order_wait
// ALWAYS-NEXT: %S_started = cuda.warpgroup_product %Q_shared, %K_shared into %S_before over [d]
// ALWAYS-NEXT: cuda.order_arrive
// ALWAYS: cuda.order_end
// ALWAYS-LABEL: cuda.kernel @products
// ALWAYS-NOT: cuda.order_
cuda.kernel @little (%x: index) threads 384 shared 24576 {
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 16384 : !K
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  cuda.roles registers 0, 0 producer {
  } consumers 2 {
    %S_none = diagram.fill 0.000000e+00 : f32 -> !s
    %l_none = diagram.fill 1.000000e+00 : f32 -> !l
    %S_sum, %l = scf.for %x0 = %zero to %x step %piece iter_args(%S_before = %S_none, %l_before = %l_none) -> (!s, !l) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared into %S_before over [d] : !Q, !K -> !s
      %S = cuda.warpgroup_wait %S_started pending 0 : !s
      %l_new = diagram.map (%one = %l_before : !l) -> !l {
        %two = arith.addf %one, %one : f32
        diagram.yield %two : f32
      }
      scf.yield %S, %l_new : !s, !l
    }
  }
}

cuda.kernel @products (%x: index) threads 384 shared 24576 {
  %Q_shared = cuda.shared at 0 : !Q
  %K_shared = cuda.shared at 16384 : !K
  %zero = arith.constant 0 : index
  %piece = arith.constant 64 : index
  cuda.roles registers 0, 0 producer {
  } consumers 2 {
    %S_none = diagram.fill 0.000000e+00 : f32 -> !s
    %S_sum = scf.for %x0 = %zero to %x step %piece iter_args(%S_before = %S_none) -> (!s) {
      %S_started = cuda.warpgroup_product %Q_shared, %K_shared into %S_before over [d] : !Q, !K -> !s
      %S = cuda.warpgroup_wait %S_started pending 0 : !s
      scf.yield %S : !s
    }
  }
}

// CHECK: #hierarchy.step<"cuda-ping-pong", "@sums", "all warpgroups take as many turns, and products keep their order within each", "a step of 2 warpgroups: 896 clocks side by side, 640 in turns">
// CHECK-SAME: #hierarchy.step<"decline cuda-ping-pong", "@little", "taking turns saves a twentieth of a step", "a step of 2 warpgroups: 257 clocks side by side, 256 in turns">
// CHECK-SAME: #hierarchy.step<"decline cuda-ping-pong", "@products", "one warpgroup's products run while another computes", "a turn does nothing but products">
func.func @host(%x: index) {
  cuda.launch @sums grid %x aligned %x (%x) : index
  cuda.launch @together grid %x aligned %x (%x) : index
  cuda.launch @around grid %x aligned %x (%x) : index
  cuda.launch @little grid %x aligned %x (%x) : index
  cuda.launch @products grid %x aligned %x (%x) : index
  func.return
}
