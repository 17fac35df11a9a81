// RUN: xdsl-opt -p diagram-differentiate %s | filecheck %s
// RUN: not treadle-opt -p 'diagram-differentiate{of=Z}' %s 2>&1 | filecheck %s --check-prefix UNKNOWN
// RUN: not treadle-opt -p 'diagram-differentiate{of=n}' %s 2>&1 | filecheck %s --check-prefix INTEGER

!Q = tensor<?x64xf16, #diagram.array<[q, d]>>
!K = tensor<?x64xf16, #diagram.array<[x, d]>>
!V = tensor<?x32xf16, #diagram.array<[x, e]>>
!O = tensor<?x32xf16, #diagram.array<[q, e]>>
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!P = tensor<?x?xf16, #diagram.array<[q, x]>>
!A = tensor<?x32xf32, #diagram.array<[q, e]>>
!X = tensor<?x?xf32, #diagram.array<[t, i]>>
!X16 = tensor<?x?xf16, #diagram.array<[t, i]>>
!b = tensor<?xf32, #diagram.array<[i]>>
!r = tensor<?xf32, #diagram.array<[t]>>
!w = tensor<?xf32, #diagram.array<[l]>>
!windows = tensor<?x3xf32, #diagram.array<[u, k]>>
!x16 = tensor<?x8xf16, #diagram.array<[l, c]>>
!w16 = tensor<3x8x16xf16, #diagram.array<[k, c, f]>>
!windows16 = tensor<?x3x8xf16, #diagram.array<[u, k, c]>>
!y16 = tensor<?x16xf16, #diagram.array<[u, f]>>
!a = tensor<?x?xf32, #diagram.array<[m, n]>>
!d = tensor<?xf32, #diagram.array<[i]>>


// The row sums of the gradient of softmax are the products of what was returned and its cotangent: no score is summed
// again. What the gradient does not need of what was computed is gone, and what it needs is computed again. The law's
// own condition is asked of the shares, so it is not asked of what they are multiplied by.
// CHECK-LABEL: func.func @shares_gradient(%Q: tensor<?x64xf16, {{.*}}>, %K: tensor<?x64xf16, {{.*}}>, %V: {{.*}}, %n: i32,
// CHECK-SAME:    %O: tensor<?x32xf16, #diagram.array<[q, e]>>, %dO: tensor<?x32xf16, #diagram.array<[q, e]>>)
// CHECK-SAME:    "gradient through %P", "gradient of @softmax", "@softmax_gradient"
// CHECK-SAME:    "%s over [e]", "exchange of sums", "%O is the sum over [x]"
// CHECK-NEXT:  %S = diagram.contract %Q, %K over [d] accumulate f32 :
// CHECK-NEXT:  %W = diagram.where %S if "x <= q + n" with (n = %n : i32) :
// CHECK-NEXT:  %P = diagram.apply @softmax(%W) over [x] :
// CHECK-NEXT:  %P16 = diagram.cast %P :
// CHECK-NEXT:  %dP16 = diagram.contract %dO, %V over [e] accumulate f32 : {{.*}} -> tensor<?x?xf32, #diagram.array<[q, x]>>
// CHECK-NEXT:  %dV = diagram.contract %P16, %dO over [q] accumulate f32 : {{.*}} -> tensor<?x32xf32, #diagram.array<[x, e]>>
// CHECK-NEXT:  %s = diagram.contract %O, %dO over [e] accumulate f32 : {{.*}} -> tensor<?xf32, #diagram.array<[q]>>
// CHECK-NEXT:  %dW = diagram.map (%a = %P : {{.*}}, %b = %dP16 : {{.*}}, %c = %s : {{.*}}) -> tensor<?x?xf32
// CHECK-NEXT:    %beyond = arith.subf %b, %c : f32
// CHECK-NEXT:    %slope = arith.mulf %a, %beyond : f32
// CHECK-NEXT:    diagram.yield %slope : f32
// CHECK-NEXT:  }
// CHECK-NEXT:  %dW_f16 = diagram.cast %dW : {{.*}} -> tensor<?x?xf16, #diagram.array<[q, x]>>
// CHECK-NEXT:  %dQ = diagram.contract %dW_f16, %K over [x] accumulate f32 :
// CHECK-NEXT:  %dK = diagram.contract %dW_f16, %Q over [q] accumulate f32 :
// CHECK-NEXT:  %[[Q:.*]] = diagram.cast %dQ : {{.*}} -> tensor<?x64xf16
// CHECK-NEXT:  %[[K:.*]] = diagram.cast %dK : {{.*}} -> tensor<?x64xf16
// CHECK-NEXT:  %[[V:.*]] = diagram.cast %dV : {{.*}} -> tensor<?x32xf16
// CHECK-NEXT:  func.return %[[Q]], %[[K]], %[[V]] :
// UNKNOWN:     there is no argument %Z to differentiate by (arguments: %Q, %K, %V, %n)
// INTEGER:     argument %n holds integers, which have no gradient
func.func @shares(%Q: !Q, %K: !K, %V: !V, %n: i32) -> !O {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %W = diagram.where %S if "x <= q + n" with (n = %n : i32) : !S
  %P = diagram.apply @softmax(%W) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
  %O = diagram.cast %A : !A -> !O
  func.return %O : !O
}

// Two uses add up: what is absent from one of them is a zero of the sum. All of an extremum goes to its elements, a bias
// that rows share gets the sum over them, and what nothing depends on gets zeros.
// CHECK-LABEL: func.func @two_uses_gradient(
// CHECK:       %[[M:.*]] = diagram.reduce max %Y over [i] :
// CHECK-NEXT:  %is_extremal = diagram.map (%y = %Y : {{.*}}, %[[m:.*]] = %[[M]] :
// CHECK-NEXT:    %[[IS:.*]] = arith.cmpf oeq, %y, %[[m]] : f32
// CHECK:       %count = diagram.reduce add %is_extremal over [i] :
// CHECK:       %dY = diagram.map (%y = %Y : {{.*}} = %[[M]] : {{.*}} = %dm : {{.*}} = %count :
// CHECK:       %[[SPREAD:.*]] = diagram.map ({{.*}} = %dp : tensor<?xf32, #diagram.array<[t]>>) -> tensor<?x?xf32, #diagram.array<[t, i]>>
// CHECK:       %[[KEPT:.*]] = diagram.where %[[SPREAD]] if "i <= t" :
// CHECK-NEXT:  %[[COLUMN:.*]] = diagram.map ({{.*}} = %[[KEPT]] : {{.*}}) -> tensor<?x?x1xf32, #diagram.array<[t, i, unit]>>
// CHECK:       %[[FILLED:.*]] = diagram.reduce add %[[COLUMN]] over [unit] :
// CHECK-NEXT:  %[[SUM:.*]] = diagram.map (%{{.*}} = %dY : {{.*}} = %[[FILLED]] :
// CHECK-NEXT:    arith.addf
// CHECK:       %dbias = diagram.reduce add %[[SUM]] over [t] :
// CHECK-NEXT:  %dother = diagram.fill 0.000000e+00 : f32 -> tensor<?xf32, #diagram.array<[t]>>
// CHECK-NEXT:  func.return %[[SUM]], %dbias, %dother :
func.func @two_uses(%X: !X, %bias: !b, %other: !r) -> (!r, !r) {
  %Y = diagram.map (%x = %X : !X, %b = %bias : !b) -> !X {
    %y = arith.addf %x, %b : f32
    diagram.yield %y : f32
  }
  %before = diagram.where %Y if "i <= t" : !X
  %p = diagram.reduce add %before over [i] : !X -> !r
  %m = diagram.reduce max %Y over [i] : !X -> !r
  func.return %p, %m : !r, !r
}

// A position gets the sum of all that was read at it: what was read 2 apart lies there with zeros between.
// CHECK-LABEL: func.func @windows_gradient(
// CHECK:       %[[AT:.*]] = diagram.where %{{.*}} if "l == 2 * u" : tensor<?x3x?xf32, #diagram.array<[l, k, u]>>
// CHECK-NEXT:  %[[GAPS:.*]] = diagram.reduce add %[[AT]] over [u] : {{.*}} -> tensor<?x3xf32, #diagram.array<[l, k]>>
// CHECK-NEXT:  %dw = diagram.read %[[GAPS]] at "l - k, k" padded : {{.*}} -> tensor<?x3xf32, #diagram.array<[l, k]>>
// CHECK-NEXT:  %[[ALL:.*]] = diagram.reduce add %dw over [k] : {{.*}} -> tensor<?xf32, #diagram.array<[l]>>
// CHECK-NEXT:  func.return %[[ALL]] :
func.func @windows(%w: !w) -> !windows {
  %y = diagram.read %w at "2 * u + k" : !w -> !windows
  func.return %y : !windows
}

// The gradient of a convolution is one, of the cotangent with zeros around: no product is saved for each k.
// CHECK-LABEL: func.func @convolution_gradient(
// CHECK:       %[[AROUND:.*]] = diagram.read %dy{{.*}} at "l - k, f" padded : {{.*}} -> tensor<?x3x16xf16, #diagram.array<[l, k, f]>>
// CHECK-NEXT:  %dx = diagram.contract %[[AROUND]], %w over [f, k] accumulate f32 : {{.*}} -> tensor<?x8xf32, #diagram.array<[l, c]>>
func.func @convolution(%x: !x16, %w: !w16) -> !y16 {
  %windows = diagram.read %x at "u + k, c" : !x16 -> !windows16
  %y = diagram.contract %windows, %w over [k, c] accumulate f32 : !windows16, !w16 -> !y16
  func.return %y : !y16
}

// Where positions of two axes are equal, no axis is left to sum over.
// CHECK-LABEL: func.func @diagonal_gradient(
// CHECK-NEXT:  %da = diagram.read %dd at "m" padded : {{.*}} -> tensor<?xf32, #diagram.array<[m]>>
// CHECK:       diagram.where %{{.*}} if "n == m" : tensor<?x?xf32, #diagram.array<[m, n]>>
func.func @diagonal(%a: !a) -> !d {
  %d = diagram.read %a at "i, i" : !a -> !d
  func.return %d : !d
}

// Nor does it make a difference which is larger, the maximum of a row or a sink beside it.
// CHECK-LABEL: func.func @with_sink_gradient(
// CHECK-SAME:    #hierarchy.step<"diagram-differentiate", "gradient through %top", "what makes no difference has no gradient",
// CHECK-NOT:     arith.cmpf
// CHECK:         func.return
func.func @with_sink(%X: !X, %sink: !r) -> !r {
  %m = diagram.reduce max %X over [i] : !X -> !r
  %top = diagram.map (%a = %m : !r, %b = %sink : !r) -> !r {
    %most = arith.maximumf %a, %b : f32
    diagram.yield %most : f32
  }
  %E = diagram.map (%x = %X : !X, %t = %top : !r) -> !X {
    %u = arith.subf %x, %t : f32
    %e = math.exp %u : f32
    diagram.yield %e : f32
  }
  %l = diagram.reduce add %E over [i] : !X -> !r
  %share = diagram.map (%s = %l : !r, %b = %sink : !r, %t = %top : !r) -> !r {
    %u = arith.subf %b, %t : f32
    %e = math.exp %u : f32
    %all = arith.addf %s, %e : f32
    %y = arith.divf %s, %all : f32
    diagram.yield %y : f32
  }
  func.return %share : !r
}

!blocks = tensor<?x?xf32, #diagram.array<[g, n]>>
!wide = tensor<48x?xf32, #diagram.array<[k, n]>>

// What counts for a block of positions gets the sum over them.
// CHECK-LABEL: func.func @of_blocks_gradient(
// CHECK:         %[[IN:.*]] = diagram.read %{{.*}} at "16 * g + k_in, n" padded : {{.*}} -> tensor<?x16x?xf32, #diagram.array<[g, k_in, n]>>
// CHECK:         diagram.reduce add %[[IN]] over [k_in]
func.func @of_blocks(%s: !blocks) -> !wide {
  %w = diagram.read %s at "k // 16, n" padded : !blocks -> !wide
  func.return %w : !wide
}
