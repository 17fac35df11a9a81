// RUN: xdsl-opt -p 'fusion' %s | filecheck %s
// RUN: xdsl-opt -p 'fusion{whole-limit=32}' %s | filecheck %s --check-prefix LIMIT
// RUN: xdsl-opt -p 'fusion{together=false}' %s | filecheck %s --check-prefix ALONE
// RUN: xdsl-opt -p 'fusion{operations=H}' %s | filecheck %s --check-prefix ASKED
// RUN: not treadle-opt -p 'fusion{whole-limit=16 operations=H,Y}' %s 2>&1 | filecheck %s --check-prefix REFUSED
// RUN: not treadle-opt -p 'fusion{operations=none}' %s 2>&1 | filecheck %s --check-prefix UNKNOWN

!X = tensor<?x?xf16, #diagram.array<[t, i]>>
!W = tensor<?x48xf16, #diagram.array<[i, j]>>
!U = tensor<48x40xf16, #diagram.array<[j, o]>>
!Z = tensor<?x48xf32, #diagram.array<[t, j]>>
!H = tensor<?x48xf16, #diagram.array<[t, j]>>
!Y = tensor<?x40xf32, #diagram.array<[t, o]>>
!x = tensor<?xf32, #diagram.array<[n]>>

// Both products in one kernel, for j and o are small enough to be held whole; i is streamed.
// CHECK-LABEL: func.func @layers
// CHECK:       %Y = hierarchy.kernel @layers (%[[X:.*]] = %X : {{.*}} as {{.*}}level = device{{.*}}, %[[W:.*]] = %W : {{.*}}, %[[U:.*]] = %U : {{.*}}) -> (tensor<?x40xf32, #diagram.array<[t, o]>>) {
// CHECK-NEXT:    %Z = diagram.contract %[[X]], %[[W]] over [i] {{.*}} -> tensor<?x48xf32, #diagram.array<[t, j], level = register>>
// CHECK-NEXT:    %H = diagram.cast %Z
// CHECK-NEXT:    %[[Y:.*]] = diagram.contract %H, %[[U]] over [j]
// CHECK-NEXT:    hierarchy.yield %[[Y]]
// CHECK:       func.return %Y

// LIMIT-LABEL: func.func @layers
// LIMIT-SAME:  #hierarchy.step<"keep apart", "%Y from %Z, %H", "no role for an axis", "axis 'j' is reduced by %Y; a group would hold all of it, but it has 48 (at most 32)">
// LIMIT:       %H = hierarchy.kernel @layers_1
// LIMIT:       %Y = hierarchy.kernel @layers_2 (%{{.*}} = %H : {{.*}}, %{{.*}} = %U : {{.*}})

// Only what is asked for joins what it uses.
// ASKED-LABEL: func.func @layers
// ASKED:       %H = hierarchy.kernel @layers_1 (%{{.*}} = %X : {{.*}}, %{{.*}} = %W : {{.*}})
// ASKED:       %Y = hierarchy.kernel @layers_2 (%{{.*}} = %H : {{.*}}, %{{.*}} = %U : {{.*}})

// REFUSED: 'diagram.contract' %Y: it is to share a kernel with what it uses, and must stay apart from %Z, %H: axis 'j' is reduced by %Y; a group would hold all of it, but it has 48 (at most 16)
// UNKNOWN: there is no operation %none to put together with what it uses

// ALONE-LABEL: func.func @layers
// ALONE:       %Z = hierarchy.kernel @layers_1 (%{{.*}} = %X : {{.*}}, %{{.*}} = %W : {{.*}})
// ALONE:       %H = hierarchy.kernel @layers_2 (%{{.*}} = %Z : {{.*}})
// ALONE:       %Y = hierarchy.kernel @layers_3 (%{{.*}} = %H : {{.*}}, %{{.*}} = %U : {{.*}})
func.func @layers(%X: !X, %W: !W, %U: !U) -> !Y {
  %Z = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !Z
  %H = diagram.cast %Z : !Z -> !H
  %Y = diagram.contract %H, %U over [j] accumulate f32 : !H, !U -> !Y
  func.return %Y : !Y
}

// The call is a boundary. %A and %C are not one kernel: a value would leave it for the call and come back.
// CHECK-LABEL: func.func private @opaque
// CHECK-LABEL: func.func @boundary
// CHECK-SAME:  #hierarchy.step<"keep apart", "%C from %A", "not convex", "a value would leave for func.call and come back">
// CHECK:       %A = hierarchy.kernel @boundary_1 (%{{.*}} = %x : {{.*}})
// CHECK:       %B = func.call @opaque(%A)
// CHECK:       %C = hierarchy.kernel @boundary_2 (%{{.*}} = %A : {{.*}}, %{{.*}} = %B : {{.*}})
func.func private @opaque(!x) -> !x
func.func @boundary(%x: !x) -> !x {
  %A = diagram.map (%a = %x : !x) -> !x {
    %y = math.sin %a : f32
    diagram.yield %y : f32
  }
  %B = func.call @opaque(%A) : (!x) -> !x
  %C = diagram.map (%a = %A : !x, %b = %B : !x) -> !x {
    %y = arith.addf %a, %b : f32
    diagram.yield %y : f32
  }
  func.return %C : !x
}

// %most and %sum walk the same array alike, and read it once. %Y, which walks it in groups along both axes, reads it for
// itself: with them it would have fewer groups. %left and %right are products, which have other things to do than to read.
!S = tensor<?x?xf32, #diagram.array<[t, i]>>
!r = tensor<?xf32, #diagram.array<[t]>>
!W32 = tensor<?x48xf32, #diagram.array<[i, j]>>
// CHECK-LABEL: func.func @readers
// CHECK-SAME:  #hierarchy.step<"fusion", "%most, %sum into @readers_1", "recolour of a convex set", "read once: %S">
// CHECK:       %most, %sum = hierarchy.kernel @readers_1 (%[[S:.*]] = %S : {{.*}} as {{.*}}) -> (tensor<?xf32, #diagram.array<[t]>>, tensor<?xf32, #diagram.array<[t]>>) {
// CHECK-NEXT:    %[[M:.*]] = diagram.reduce max %[[S]] over [i]
// CHECK-NEXT:    %[[A:.*]] = diagram.reduce add %[[S]] over [i]
// CHECK-NEXT:    hierarchy.yield %[[M]], %[[A]]
// CHECK:       %Y = hierarchy.kernel @readers_2 (%{{.*}} = %S : {{.*}})
// CHECK:       %left = hierarchy.kernel @readers_3 (%{{.*}} = %S : {{.*}}, %{{.*}} = %W : {{.*}})
// CHECK:       %right = hierarchy.kernel @readers_4 (%{{.*}} = %S : {{.*}}, %{{.*}} = %U : {{.*}})

// ALONE-LABEL: func.func @readers
// ALONE:       %most = hierarchy.kernel @readers_1 (%{{.*}} = %S : {{.*}})
// ALONE:       %sum = hierarchy.kernel @readers_2 (%{{.*}} = %S : {{.*}})
func.func @readers(%S: !S, %W: !W32, %U: !W32) -> (!r, !r, !S, !Z, !Z) {
  %most = diagram.reduce max %S over [i] : !S -> !r
  %sum = diagram.reduce add %S over [i] : !S -> !r
  %Y = diagram.map (%a = %S : !S) -> !S {
    %y = math.sin %a : f32
    diagram.yield %y : f32
  }
  %left = diagram.contract %S, %W over [i] accumulate f32 : !S, !W32 -> !Z
  %right = diagram.contract %S, %U over [i] accumulate f32 : !S, !W32 -> !Z
  func.return %most, %sum, %Y, %left, %right : !r, !r, !S, !Z, !Z
}

// The sum over e holds e whole: columns of %Z would lie along its 4 elements alone, with j taken index by index.
!E = tensor<4x?x?xf16, #diagram.array<[e, i, j]>>
!ZE = tensor<?x4x?xf32, #diagram.array<[t, e, j]>>
!ZJ = tensor<?x?xf32, #diagram.array<[t, j]>>
// CHECK-LABEL: func.func @few_columns
// CHECK-SAME:  #hierarchy.step<"keep apart", "%R from %Z", "few columns", "the product %Z would have columns along 'e' alone, of which there are 4: groups may not cut it, and would take 't' or 'j' index by index">
// CHECK:       %Z = hierarchy.kernel @few_columns_1 (%{{.*}} = %X : {{.*}}, %{{.*}} = %E : {{.*}})
// CHECK:       %R = hierarchy.kernel @few_columns_2 (%{{.*}} = %Z : {{.*}})
func.func @few_columns(%X: !X, %E: !E) -> !ZJ {
  %Z = diagram.contract %X, %E over [i] accumulate f32 : !X, !E -> !ZE
  %R = diagram.reduce add %Z over [e] : !ZE -> !ZJ
  func.return %R : !ZJ
}

// Only one of j and t can be streamed: the maximum over t asks in its own kernel what there is of %S.
// CHECK-LABEL: func.func @asked_again
// CHECK-SAME:  #hierarchy.step<"fusion", "%W_b: %W again", "recomputation", "moves fewer bytes than saving and reading it">
// CHECK:       hierarchy.kernel @asked_again_1 (%[[S1:.*]] = %S : {{.*}})
// CHECK-NEXT:    %W = diagram.where %[[S1]] if "j <= t"
// CHECK-NEXT:    diagram.reduce max %W over [j]
// CHECK:       hierarchy.kernel @asked_again_2 (%[[S2:.*]] = %S : {{.*}})
// CHECK-NEXT:    %W_b = diagram.where %[[S2]] if "j <= t"
// CHECK-NEXT:    diagram.reduce max %W_b over [t]
!rj = tensor<?xf32, #diagram.array<[j]>>
func.func @asked_again(%S: !ZJ) -> (!r, !rj) {
  %W = diagram.where %S if "j <= t" : !ZJ
  %across = diagram.reduce max %W over [j] : !ZJ -> !r
  %down = diagram.reduce max %W over [t] : !ZJ -> !rj
  func.return %across, %down : !r, !rj
}

// Neither of the axes of %R can be held whole: the product sums over one, and leaves the other to a sum.
!P = tensor<?x?xf16, #diagram.array<[t, i]>>
!Q = tensor<?x?x?xf16, #diagram.array<[b, i, t]>>
!b16 = tensor<?xf16, #diagram.array<[b]>>
// CHECK-LABEL: func.func @two_symbolic
// CHECK-SAME:  #hierarchy.step<"fusion", "%R one axis after another", "associativity of add", "">
// CHECK:       diagram.contract %{{.*}}, %{{.*}} over [t] accumulate f32 : {{.*}} -> tensor<?x?xf32, #diagram.array<[i, b], level = register>>
// CHECK:       diagram.reduce add %{{.*}} over [i] : {{.*}} -> tensor<?xf32, #diagram.array<[b], level = register>>
// CHECK:       diagram.cast
func.func @two_symbolic(%X: !P, %Y: !Q) -> !b16 {
  %R = diagram.contract %X, %Y over [t, i] accumulate f32 : !P, !Q -> !b16
  func.return %R : !b16
}

// The longest axis comes first: fewer elements are left for the others.
// CHECK-LABEL: func.func @longest_first
// CHECK:       diagram.contract %{{.*}}, %{{.*}} over [i] accumulate f32 : {{.*}} -> tensor<?x?xf32, #diagram.array<[t, b], level = register>>
// CHECK:       diagram.reduce add %{{.*}} over [t] : {{.*}} -> tensor<?xf32, #diagram.array<[b], level = register>>
func.func @longest_first(%X: !P, %Y: !Q) -> !b16 attributes {sizes = #diagram.sizes<t = 4, i = 4096, b = 64>} {
  %R = diagram.contract %X, %Y over [t, i] accumulate f32 : !P, !Q -> !b16
  func.return %R : !b16
}

// Both are held whole where i is streamed, and a product sums over one axis at a time.
!A4 = tensor<4x16xf16, #diagram.array<[u, v]>>
!B4 = tensor<4x16x?xf16, #diagram.array<[u, v, i]>>
!i = tensor<?xf32, #diagram.array<[i]>>
!s = tensor<f32, #diagram.array<[]>>
// CHECK-LABEL: func.func @two_whole
// CHECK-SAME:  #hierarchy.step<"keep apart", "%s from %r", "no role for an axis", "the product %r would sum over 'u' and 'v' at once, neither of which is streamed">
func.func @two_whole(%A: !A4, %B: !B4) -> !s {
  %r = diagram.contract %A, %B over [u, v] accumulate f32 : !A4, !B4 -> !i
  %s = diagram.reduce add %r over [i] : !i -> !s
  func.return %s : !s
}

// Every group along o would take the sines of all rows again: at the stated sizes two kernels are faster. At few
// rows nothing is cut; nor where a size is not stated.
// CHECK-LABEL: func.func @sines_of_rows
// CHECK-SAME:  #hierarchy.step<"keep apart", "%Y from %G", "cost model", "every group along 'o' would make it again: estimated {{[0-9.e+]+}} us apart, {{[0-9.e+]+}} us as one kernel at t = 16384, i = 4096, o = 4096">
// CHECK:       %G = hierarchy.kernel @sines_of_rows_1 (%[[G:.*]] = %X : {{.*}})
// CHECK:       %Y = hierarchy.kernel @sines_of_rows_2 (%[[GY:.*]] = %G : {{.*}}, %[[WY:.*]] = %W : {{.*}})
// CHECK-NEXT:    diagram.contract %[[GY]], %[[WY]] over [i]
// ALONE-LABEL: func.func @sines_of_rows
// ALONE-NOT:   "cost model"
// ALONE:       %G = hierarchy.kernel
!Wo = tensor<?x?xf16, #diagram.array<[i, o]>>
!Yo = tensor<?x?xf32, #diagram.array<[t, o]>>
func.func @sines_of_rows(%X: !X, %W: !Wo) -> !Yo attributes {sizes = #diagram.sizes<t = 16384, i = 4096, o = 4096>} {
  %G = diagram.map (%x = %X : !X) -> !X {
    %g = math.sin %x : f16
    diagram.yield %g : f16
  }
  %Y = diagram.contract %G, %W over [i] accumulate f32 : !X, !Wo -> !Yo
  func.return %Y : !Yo
}

// CHECK-LABEL: func.func @sines_of_few_rows
// CHECK:       %Y = hierarchy.kernel @sines_of_few_rows (%{{.*}} = %X : {{.*}}, %{{.*}} = %W : {{.*}})
func.func @sines_of_few_rows(%X: !X, %W: !Wo) -> !Yo attributes {sizes = #diagram.sizes<t = 100, i = 70, o = 90>} {
  %G = diagram.map (%x = %X : !X) -> !X {
    %g = math.sin %x : f16
    diagram.yield %g : f16
  }
  %Y = diagram.contract %G, %W over [i] accumulate f32 : !X, !Wo -> !Yo
  func.return %Y : !Yo
}

// CHECK-LABEL: func.func @sines_of_unknown_rows
// CHECK:       %Y = hierarchy.kernel @sines_of_unknown_rows (%{{.*}} = %X : {{.*}}, %{{.*}} = %W : {{.*}})
func.func @sines_of_unknown_rows(%X: !X, %W: !Wo) -> !Yo attributes {sizes = #diagram.sizes<t = 16384, i = 4096>} {
  %G = diagram.map (%x = %X : !X) -> !X {
    %g = math.sin %x : f16
    diagram.yield %g : f16
  }
  %Y = diagram.contract %G, %W over [i] accumulate f32 : !X, !Wo -> !Yo
  func.return %Y : !Yo
}

// What a product multiplies is made of a maximum that it cannot join, as the product reads another result of that kernel,
// too: the product makes it, of fewer numbers than it would read.
// CHECK-LABEL: func.func @made_by_the_product
// CHECK:       %most, %P = hierarchy.kernel @made_by_the_product_1 (%{{.*}} = %R : {{.*}})
// CHECK:       %Z = hierarchy.kernel @made_by_the_product_2 (%[[P:.*]] = %P : {{.*}}, %[[V:.*]] = %V : {{.*}}, %[[Q:.*]] = %Q : {{.*}}, %[[M:.*]] = %most : {{.*}})
// CHECK-NEXT:    %states = diagram.contract %[[P]], %[[V]] over [j]
// CHECK-NEXT:    %near = diagram.map (%q = %[[Q]] : {{.*}}, %m = %[[M]] : {{.*}})
// CHECK:         diagram.contract %near, %states over [d]
!Rb = tensor<?x?xf32, #diagram.array<[i, j]>>
!ri = tensor<?xf32, #diagram.array<[i]>>
!Qt = tensor<?x64x64xf32, #diagram.array<[i, s, d]>>
!Vb = tensor<?x64x64xf32, #diagram.array<[j, d, e]>>
!Yi = tensor<?x64x64xf32, #diagram.array<[i, d, e]>>
!Zi = tensor<?x64x64xf32, #diagram.array<[i, s, e]>>
func.func @made_by_the_product(%R: !Rb, %Q: !Qt, %V: !Vb) -> !Zi {
  %most = diagram.reduce max %R over [j] : !Rb -> !ri
  %P = diagram.map (%r = %R : !Rb, %m = %most : !ri) -> !Rb {
    %d = arith.subf %r, %m : f32
    %p = math.exp %d : f32
    diagram.yield %p : f32
  }
  %states = diagram.contract %P, %V over [j] accumulate f32 as tf32 : !Rb, !Vb -> !Yi
  %near = diagram.map (%q = %Q : !Qt, %m = %most : !ri) -> !Qt {
    %p = math.exp %m : f32
    %n = arith.mulf %q, %p : f32
    diagram.yield %n : f32
  }
  %Z = diagram.contract %near, %states over [d] accumulate f32 as tf32 : !Qt, !Yi -> !Zi
  func.return %Z : !Zi
}

// Two attentions whose results are combined: one stream would add up both products, in the registers of both.
// CHECK-LABEL: func.func @difference
// CHECK-SAME:  #hierarchy.step<"keep apart", "%S2, %m2, %e2, %l2, %P2, %A2, %D from %S1, %m1, %e1, %l1, %P1, %A1", "cost model", "%A1 and %A2 would share registers: estimated {{[0-9.e+]+}} us apart, {{[0-9.e+]+}} us as one kernel">
// CHECK:       %[[L1:.*]], %[[A1:.*]] = hierarchy.kernel @difference_1 (%{{.*}} = %Q1 : {{.*}}, %{{.*}} = %K1 : {{.*}}, %{{.*}} = %V : {{.*}})
// CHECK:       %D = hierarchy.kernel @difference_2 (%{{.*}} = %Q2 : {{.*}}, %{{.*}} = %K2 : {{.*}}, %{{.*}} = %V : {{.*}})
!Qh = tensor<4096x64xf16, #diagram.array<[q, d]>>
!Kh = tensor<4096x64xf16, #diagram.array<[x, d]>>
!Vh = tensor<4096x128xf16, #diagram.array<[x, e]>>
!Sh = tensor<4096x4096xf32, #diagram.array<[q, x]>>
!Ph = tensor<4096x4096xf16, #diagram.array<[q, x]>>
!mh = tensor<4096xf32, #diagram.array<[q]>>
!Ah = tensor<4096x128xf32, #diagram.array<[q, e]>>
func.func @difference(%Q1: !Qh, %K1: !Kh, %Q2: !Qh, %K2: !Kh, %V: !Vh) -> !Ah {
  %S1 = diagram.contract %Q1, %K1 over [d] accumulate f32 : !Qh, !Kh -> !Sh
  %m1 = diagram.reduce max %S1 over [x] : !Sh -> !mh
  %e1 = diagram.map (%s = %S1 : !Sh, %m = %m1 : !mh) -> !Sh {
    %d = arith.subf %s, %m : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }
  %l1 = diagram.reduce add %e1 over [x] : !Sh -> !mh
  %P1 = diagram.cast %e1 : !Sh -> !Ph
  %A1 = diagram.contract %P1, %V over [x] accumulate f32 : !Ph, !Vh -> !Ah
  %S2 = diagram.contract %Q2, %K2 over [d] accumulate f32 : !Qh, !Kh -> !Sh
  %m2 = diagram.reduce max %S2 over [x] : !Sh -> !mh
  %e2 = diagram.map (%s = %S2 : !Sh, %m = %m2 : !mh) -> !Sh {
    %d = arith.subf %s, %m : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }
  %l2 = diagram.reduce add %e2 over [x] : !Sh -> !mh
  %P2 = diagram.cast %e2 : !Sh -> !Ph
  %A2 = diagram.contract %P2, %V over [x] accumulate f32 : !Ph, !Vh -> !Ah
  %D = diagram.map (%a = %A1 : !Ah, %k = %l1 : !mh, %b = %A2 : !Ah, %l = %l2 : !mh) -> !Ah {
    %p = arith.divf %a, %k : f32
    %r = arith.divf %b, %l : f32
    %d = arith.subf %p, %r : f32
    diagram.yield %d : f32
  }
  func.return %D : !Ah
}

// Sums of rows that are too long to be held leave what is made of scores without a role for c. They are kernels of their
// own, so that scores are in the one that reduces them.
// CHECK-LABEL: func.func @contrast
// CHECK-SAME:  #hierarchy.step<"fusion", "%most, %e, %l, %own, %loss with %R, %S, %W", "cost model", "estimated {{[0-9.e+]+}} us, {{[0-9.e+]+}} us with %a2, %a, %b2, %b, %R, %S, %W as a kernel">
// CHECK:       %a = hierarchy.kernel @contrast_1 (%{{.*}} = %A : {{.*}})
// CHECK:       %b = hierarchy.kernel @contrast_2 (%{{.*}} = %B : {{.*}})
// CHECK:       %loss = hierarchy.kernel @contrast_3 (%[[A:.*]] = %A : {{.*}}, %[[B:.*]] = %B : {{.*}}, %{{.*}} = %a : {{.*}}, %{{.*}} = %b : {{.*}})
// CHECK-NEXT:    %R = diagram.contract %[[A]], %[[B]] over [c]
!Ac = tensor<16384x512xf16, #diagram.array<[i, c]>>
!Bc = tensor<16384x512xf16, #diagram.array<[j, c]>>
!A2 = tensor<16384x512xf32, #diagram.array<[i, c]>>
!B2 = tensor<16384x512xf32, #diagram.array<[j, c]>>
!ai = tensor<16384xf32, #diagram.array<[i]>>
!bj = tensor<16384xf32, #diagram.array<[j]>>
!Sc = tensor<16384x16384xf32, #diagram.array<[i, j]>>
func.func @contrast(%A: !Ac, %B: !Bc) -> !ai {
  %a2 = diagram.map (%x = %A : !Ac) -> !A2 {
    %w = arith.extf %x : f16 to f32
    %s = arith.mulf %w, %w : f32
    diagram.yield %s : f32
  }
  %a = diagram.reduce add %a2 over [c] : !A2 -> !ai
  %b2 = diagram.map (%x = %B : !Bc) -> !B2 {
    %w = arith.extf %x : f16 to f32
    %s = arith.mulf %w, %w : f32
    diagram.yield %s : f32
  }
  %b = diagram.reduce add %b2 over [c] : !B2 -> !bj
  %R = diagram.contract %A, %B over [c] accumulate f32 : !Ac, !Bc -> !Sc
  %S = diagram.map (%r = %R : !Sc, %m = %a : !ai, %n = %b : !bj) -> !Sc {
    %p = arith.mulf %m, %n : f32
    %q = math.rsqrt %p : f32
    %s = arith.mulf %r, %q : f32
    diagram.yield %s : f32
  }
  %most = diagram.reduce max %S over [j] : !Sc -> !ai
  %e = diagram.map (%s = %S : !Sc, %m = %most : !ai) -> !Sc {
    %d = arith.subf %s, %m : f32
    %p = math.exp %d : f32
    diagram.yield %p : f32
  }
  %l = diagram.reduce add %e over [j] : !Sc -> !ai
  %W = diagram.where %S if "i == j" : !Sc
  %own = diagram.reduce add %W over [j] : !Sc -> !ai
  %loss = diagram.map (%x = %l : !ai, %y = %own : !ai) -> !ai {
    %log = math.log %x : f32
    %d = arith.subf %log, %y : f32
    diagram.yield %d : f32
  }
  func.return %loss : !ai
}

// What a step of a recurrence does not use is not made, and its axes are none of the kernel.
// CHECK-LABEL: func.func @unused(
// CHECK-NEXT:    %l = hierarchy.kernel @unused (%H{{.*}} = %H : {{[^%]*}}, %X{{.*}} = %X : {{[^%]*}}) {
// CHECK-NEXT:      {{.*}} = diagram.recurrence over t (%h = {{.*}}) each (%x = %X{{[^%]*}}) ->
!unused_X = tensor<?x5xf32, #diagram.array<[t, c]>>
!unused_Y = tensor<?x7xf32, #diagram.array<[t, d]>>
!unused_c = tensor<5xf32, #diagram.array<[c]>>
func.func @unused(%X: !unused_X, %Y: !unused_Y, %H: !unused_c) -> !unused_c {
  %Z = diagram.map (%a = %Y : !unused_Y) -> !unused_Y {
    %e = math.exp %a : f32
    diagram.yield %e : f32
  }
  %l = diagram.recurrence over t (%h = %H : !unused_c) each (%y = %Z : !unused_Y, %x = %X : !unused_X) -> (!unused_c) {
    %s = diagram.map (%a = %h : !unused_c, %b = %x : !unused_c) -> !unused_c {
      %u = arith.addf %a, %b : f32
      diagram.yield %u : f32
    }
    diagram.yield %s : !unused_c
  }
  func.return %l : !unused_c
}
