// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-bubble-up-reads' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-bubble-up-reads' %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=a100},diagram-bubble-up-reads{arrays=none}' %s | filecheck %s --check-prefix NONE
// RUN: xdsl-opt --verify-diagnostics -p 'set-machine{name=a100},diagram-bubble-up-reads{arrays=X}' %s | filecheck %s --check-prefix WRONG

// WRONG: %X is no array that is computed, read at other positions that lie within it, and made of what can be read there: such are %O, %P, %windows

!X = tensor<?x64xf16, #diagram.array<[t, i]>>
!W = tensor<2x512x64xf16, #diagram.array<[s, j, i]>>
!b = tensor<2x512xf32, #diagram.array<[s, j]>>
!P = tensor<?x2x512xf32, #diagram.array<[t, s, j]>>
!H = tensor<?x512xf32, #diagram.array<[t, j]>>

// Two parts of a product, with a bias, are products of parts.
// CHECK-LABEL: func.func @gated
// CHECK-SAME:    #hierarchy.step<"diagram-bubble-up-reads", "%P at 't, 0, j'", "naturality of reads", "estimated
// CHECK-SAME:    #hierarchy.step<"diagram-bubble-up-reads", "%P at 't, 1, j'", "naturality of reads", "estimated
// CHECK-NEXT:  %bias_b = diagram.read %bias at "0, j" : tensor<2x512xf32, #diagram.array<[s, j]>> -> tensor<512xf32, #diagram.array<[j]>>
// CHECK-NEXT:  %W_b = diagram.read %W at "0, j, i" : tensor<2x512x64xf16, #diagram.array<[s, j, i]>> -> tensor<512x64xf16, #diagram.array<[j, i]>>
// CHECK-NEXT:  %XW_b = diagram.contract %X, %W_b over [i] accumulate f32 {{.*}} -> tensor<?x512xf32, #diagram.array<[t, j]>>
// CHECK-NEXT:  %gate = diagram.map (%p = %XW_b : {{.*}}, %q = %bias_b
// CHECK:       %bias_c = diagram.read %bias at "1, j"
// CHECK-NEXT:  %W_c = diagram.read %W at "1, j, i"
// CHECK-NEXT:  %XW_c = diagram.contract %X, %W_c over [i]
// CHECK-NEXT:  %value = diagram.map (%p = %XW_c : {{.*}}, %q = %bias_c
// NONE-LABEL: func.func @gated
// NONE:        %gate = diagram.read %P at "t, 0, j"
func.func @gated(%X: !X, %W: !W, %bias: !b) -> !H attributes {sizes = #diagram.sizes<t = 4096>} {
  %XW = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !P
  %P = diagram.map (%p = %XW : !P, %q = %bias : !b) -> !P {
    %sum = arith.addf %p, %q : f32
    diagram.yield %sum : f32
  }
  %gate = diagram.read %P at "t, 0, j" : !P -> !H
  %value = diagram.read %P at "t, 1, j" : !P -> !H
  %H = diagram.map (%g = %gate : !H, %v = %value : !H) -> !H {
    %h = arith.mulf %g, %v : f32
    diagram.yield %h : f32
  }
  func.return %H : !H
}

!Q = tensor<?x1024x64xf16, #diagram.array<[b, q, d]>>
!K = tensor<?x?x64xf16, #diagram.array<[b, x, d]>>
!S = tensor<?x1024x?xf32, #diagram.array<[b, q, x]>>
!O = tensor<?x1024xf32, #diagram.array<[b, q]>>
!o = tensor<?xf32, #diagram.array<[b]>>

// A condition is asked at the position that is read, and what nobody reads is not made.
// CHECK-LABEL: func.func @last
// CHECK-NEXT:  %Q_b = diagram.read %Q at "b, 1023, d" : {{.*}} -> tensor<?x64xf16, #diagram.array<[b, d]>>
// CHECK-NEXT:  %S_b = diagram.contract %Q_b, %K over [d] {{.*}} -> tensor<?x?xf32, #diagram.array<[b, x]>>
// CHECK-NEXT:  %W_b = diagram.where %S_b if "x <= 1023 + 3"
// CHECK-NEXT:  %o = diagram.reduce max %W_b over [x]
// CHECK-NEXT:  func.return %o
func.func @last(%Q: !Q, %K: !K) -> !o attributes {sizes = #diagram.sizes<b = 64, x = 4096>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %W = diagram.where %S if "x <= q + 3" : !S
  %O = diagram.reduce max %W over [x] : !S -> !O
  %o = diagram.read %O at "b, 1023" : !O -> !o
  func.return %o : !o
}

!A = tensor<1026x512xf16, #diagram.array<[m, k]>>
!B = tensor<512x512xf16, #diagram.array<[k, n]>>
!C = tensor<1026x512xf32, #diagram.array<[m, n]>>
!T = tensor<1024x3x512xf32, #diagram.array<[t, r, n]>>

// A product that windows read three times is made once.
// CHECK-LABEL: func.func @windows
// CHECK-SAME:    #hierarchy.step<"decline diagram-bubble-up-reads", "%windows", "time must be saved", "estimated
// CHECK-NEXT:  %windows = diagram.contract %A, %B over [k]
// CHECK-NEXT:  %T = diagram.read %windows at "t + r, n"
func.func @windows(%A: !A, %B: !B) -> !T {
  %windows = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !C
  %T = diagram.read %windows at "t + r, n" : !C -> !T
  func.return %T : !T
}

!row = tensor<?xf16, #diagram.array<[t]>>
!wide = tensor<?xf32, #diagram.array<[t]>>

// What a read alone gives a size, or what may lie outside, is read as it is.
// CHECK-LABEL: func.func @sized
// CHECK:       %y = diagram.read %x at "u + r"
func.func @sized(%a: !row, %w: tensor<?xf16, #diagram.array<[r]>>) -> tensor<?x?xf32, #diagram.array<[u, r]>> {
  %x = diagram.map (%e = %a : !row) -> !wide {
    %f = arith.extf %e : f16 to f32
    diagram.yield %f : f32
  }
  %y = diagram.read %x at "u + r" : !wide -> tensor<?x?xf32, #diagram.array<[u, r]>>
  func.return %y : tensor<?x?xf32, #diagram.array<[u, r]>>
}
