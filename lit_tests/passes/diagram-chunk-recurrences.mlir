// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-chunk-recurrences{recurrences=S,R length=16}' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-chunk-recurrences{recurrences=S,R length=16}' %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-chunk-recurrences' %s | filecheck %s --check-prefix PAYS
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-chunk-recurrences{recurrences=none}' %s | filecheck %s --check-prefix NONE
// RUN: xdsl-opt --verify-diagnostics -p 'diagram-chunk-recurrences{recurrences=T}' %s | filecheck %s --check-prefix WRONG
// RUN: xdsl-opt --verify-diagnostics -p 'diagram-chunk-recurrences{length=-1}' %s | filecheck %s --check-prefix LENGTH

// WRONG: %T is no recurrence whose step is affine in its states: such are %R, %S
// LENGTH: a chunk has at least one position, not -1

// NONE-COUNT-3: diagram.recurrence
// NONE-NOT: diagram.recurrence

!K = tensor<16x4096x64xf32, #diagram.array<[h, t, d]>>
!V = tensor<16x4096x64xf32, #diagram.array<[h, t, e]>>
!S = tensor<16x64x64xf32, #diagram.array<[h, d, e]>>
!k = tensor<16x64xf32, #diagram.array<[h, d]>>
!v = tensor<16x64xf32, #diagram.array<[h, e]>>

// Elements meet along 'd', and all columns 'e' alike: what a chunk multiplies by is one matrix for all of these.
// CHECK-LABEL: func.func @delta
// CHECK-SAME:    #hierarchy.step<"diagram-chunk-recurrences", "%S along t, in chunks of 16", "affine steps compose: M' (M S + b) + b' = (M' M) S + (M' b + b')", "asked for">
// CHECK:         %[[K:.*]] = diagram.read %K at "h, 16 * t_chunk + t_in, d" : {{.*}} -> tensor<16x256x16x64xf32, #diagram.array<[h, t_chunk, t_in, d]>>
// CHECK:         %identity = diagram.map {{.*}} -> tensor<256x16x64x64xf32, #diagram.array<[t_chunk, h, d, d_from]>>
// CHECK:         %S_factor = diagram.recurrence over t_in (%{{.*}} = %identity : {{.*}}) each (%{{.*}} = %[[K]] : {{.*}})
// CHECK:           diagram.contract {{.*}} -> tensor<256x16x64xf32, #diagram.array<[t_chunk, h, d_from]>>
// CHECK:           %[[N:.*]] = arith.negf
// CHECK-NEXT:      %[[P:.*]] = arith.mulf %[[N]]
// CHECK-NEXT:      arith.addf %{{.*}}, %[[P]] : f32
// CHECK:         %S_part = diagram.recurrence over t_in (%{{.*}} = %none : {{.*}})
// CHECK:         %S, %S_before = diagram.recurrence over t_chunk
// CHECK:           %[[R:.*]] = diagram.rename %{{.*}} (d as d_from)
// CHECK:           diagram.contract %{{.*}}, %[[R]] over [d_from] accumulate f32
// CHECK:         %{{.*}}, %O_chunks = diagram.recurrence over t_in (%{{.*}} = %S_before : {{.*}})
// CHECK:         %O = diagram.collapse %O_chunks [t_chunk, t_in] as t
// PAYS-LABEL: func.func @delta
// PAYS-SAME:    #hierarchy.step<"diagram-chunk-recurrences", "%S along t, in chunks of 64", {{.*}}, "estimated
// PAYS:         %S, %S_before = diagram.recurrence over t_chunk
func.func @delta(%Q: !K, %K: !K, %V: !V, %S0: !S) -> !V {
  %S, %O = diagram.recurrence over t (%s = %S0 : !S) each (%q = %Q : !K, %k = %K : !K, %v = %V : !V) -> (!S, !V) {
    %said = diagram.contract %k, %s over [d] accumulate f32 : !k, !S -> !v
    %after = diagram.map (%old = %s : !S, %x = %k : !k, %y = %v : !v, %z = %said : !v) -> !S {
      %w = arith.subf %y, %z : f32
      %m = arith.mulf %x, %w : f32
      %n = arith.addf %old, %m : f32
      diagram.yield %n : f32
    }
    %o = diagram.contract %q, %after over [d] accumulate f32 : !k, !S -> !v
    diagram.yield %after, %o : !S, !v
  }
  func.return %O : !V
}

!X = tensor<?x?xf32, #diagram.array<[b, t]>>
!s = tensor<?xf32, #diagram.array<[b]>>

// The other way, positions that the last chunk lacks come first, and leave the state as it is. Sixty positions are few.
// CHECK-LABEL: func.func @gates
// CHECK:         %{{.*}} = diagram.read %G at "b, 16 * t_chunk + t_in" padded
// CHECK:         %present = diagram.map
// CHECK:         %R_factor = diagram.recurrence over t_in reverse (%{{.*}} = %one
// CHECK:           arith.select
// CHECK:         %R_part = diagram.recurrence over t_in reverse
// CHECK:           arith.select
// CHECK:         %R, %R_before = diagram.recurrence over t_chunk reverse
// CHECK:         %{{.*}}, %Y_chunks = diagram.recurrence over t_in reverse
// CHECK:           arith.select
// CHECK:         %[[C:.*]] = diagram.collapse %Y_chunks [t_chunk, t_in] as t_whole
// CHECK:         %Y = diagram.read %[[C]] at "b, t"
// PAYS-LABEL: func.func @gates
// PAYS-SAME:    #hierarchy.step<"decline diagram-chunk-recurrences", "%R", {{.*}}, "'t' has 60 positions, fewer than 8 chunks of 64">
// PAYS:         %R, %Y = diagram.recurrence over t reverse
func.func @gates(%G: !X, %X: !X, %S0: !s) -> (!X, !s) attributes {sizes = #diagram.sizes<b = 8, t = 60>} {
  %R, %Y = diagram.recurrence over t reverse (%s = %S0 : !s) each (%g = %G : !X, %x = %X : !X) -> (!s, !X) {
    %a = diagram.map (%p = %s : !s, %q = %g : !s, %r = %x : !s) -> !s {
      %u = arith.mulf %p, %q : f32
      %v = arith.addf %u, %r : f32
      diagram.yield %v : f32
    }
    diagram.yield %a, %a : !s, !s
  }
  func.return %Y, %R : !X, !s
}

// No function of the state but an affine one.
// CHECK-LABEL: func.func @cells
// CHECK:         %T = diagram.recurrence over t (
// PAYS-LABEL: func.func @cells
// PAYS-SAME:    #hierarchy.step<"decline diagram-chunk-recurrences", "%T", {{.*}}, "'math.tanh' of its state">
func.func @cells(%X: !X, %S0: !s) -> !s attributes {sizes = #diagram.sizes<b = 8, t = 4096>} {
  %T = diagram.recurrence over t (%s = %S0 : !s) each (%x = %X : !X) -> (!s) {
    %a = diagram.map (%p = %s : !s, %r = %x : !s) -> !s {
      %u = math.tanh %p : f32
      %v = arith.addf %u, %r : f32
      diagram.yield %v : f32
    }
    diagram.yield %a : !s
  }
  func.return %T : !s
}
