// RUN: xdsl-opt -p 'fusion,streaming' %s | filecheck %s
// RUN: xdsl-opt -p 'fusion,streaming{axis=d kernel=scores}' %s | filecheck %s --check-prefix CHOSEN

!Q = tensor<?x64xf16, #diagram.array<[q, d]>>
!K = tensor<?x64xf16, #diagram.array<[x, d]>>
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!r = tensor<?xf32, #diagram.array<[q]>>
!n = tensor<?xi32, #diagram.array<[x]>>
!F = tensor<?x?xi32, #diagram.array<[q, x]>>
!i = tensor<?xi32, #diagram.array<[q]>>

// The symbolic axis is streamed, and the sum follows the maximum by the cascade law.
// CHECK-LABEL: func.func @rows
// CHECK-SAME:  #hierarchy.step<"streaming", "%m of @rows along x", "associativity of max", "">
// CHECK-SAME:  #hierarchy.step<"streaming", "%l of @rows along x", "cascade", "when %m moves, %l is multiplied by exp(%m before - %m); while %m is neutral nothing counts, and a finite number stands for it">
// CHECK:       hierarchy.kernel @rows ({{.*}}) -> ({{.*}}) schedule #hierarchy.schedule<stream = [x = ?]> {
// CHOSEN-LABEL: func.func @rows
// CHOSEN-NOT:  schedule
func.func @rows(%Q: !Q, %K: !K) -> !r {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %m = diagram.reduce max %S over [x] : !S -> !r
  %E = diagram.map (%s = %S : !S, %r = %m : !r) -> !S {
    %d = arith.subf %s, %r : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }
  %l = diagram.reduce add %E over [x] : !S -> !r
  func.return %l : !r
}

// CHECK-LABEL: func.func @scores
// CHECK:       schedule #hierarchy.schedule<stream = [d = ?]>
// CHOSEN-LABEL: func.func @scores
// CHOSEN-SAME: #hierarchy.step<"streaming", "%S of @scores along d", "linearity of the contraction", "">
// CHOSEN:      schedule #hierarchy.schedule<stream = [d = ?]>
func.func @scores(%Q: !Q, %K: !K) -> !S {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  func.return %S : !S
}

// The squares of distances from a running mean do not split: the pieces are made again in a further stream.
// CHECK-LABEL: func.func @distances
// CHECK-SAME:  "%v of @distances along x", "recomputation", "a further stream, for {{.*}} does not split into a part along 'x' and a part that moves"
func.func @distances(%S: !S) -> !r {
  %t = diagram.reduce add %S over [x] : !S -> !r
  %D = diagram.map (%s = %S : !S, %r = %t : !r) -> !S {
    %d = arith.subf %s, %r : f32
    %e = arith.mulf %d, %d : f32
    diagram.yield %e : f32
  }
  %v = diagram.reduce add %D over [x] : !S -> !r
  func.return %v : !r
}

// The first position of a maximum begins anew where the maximum moves. Beside another test it would not: what holds of
// the one may hold of an element before.
// CHECK-LABEL: func.func @first
// CHECK-SAME:  #hierarchy.step<"streaming", "%first of @first along x", "cascade", "when %m moves, %first begins anew, for no element so far equals it">
// CHECK-SAME:  "%other of @first along x", "recomputation"
func.func @first(%S: !S) -> (!i, !i) {
  %m = diagram.reduce max %S over [x] : !S -> !r
  %n = diagram.index -> !n
  %F = diagram.map (%s = %S : !S, %r = %m : !r, %x = %n : !n) -> !F {
    %nowhere = arith.constant 2147483647 : i32
    %is = arith.cmpf oeq, %s, %r : f32
    %is_not = arith.cmpf une, %s, %s : f32
    %either = arith.ori %is, %is_not : i1
    %f = arith.select %either, %x, %nowhere : i32
    diagram.yield %f : i32
  }
  %first = diagram.reduce min %F over [x] : !F -> !i
  %G = diagram.map (%s = %S : !S, %r = %m : !r, %x = %n : !n) -> !F {
    %nowhere = arith.constant 2147483647 : i32
    %zero = arith.constant 0.0 : f32
    %is = arith.cmpf oeq, %s, %r : f32
    %is_zero = arith.cmpf oeq, %s, %zero : f32
    %either = arith.ori %is, %is_zero : i1
    %f = arith.select %either, %x, %nowhere : i32
    diagram.yield %f : i32
  }
  %other = diagram.reduce min %G over [x] : !F -> !i
  func.return %first, %other : !i, !i
}

// Shares are made in a stream of their own, which makes their powers with the logarithm of what would divide them.
// CHECK-LABEL: func.func @shares
// CHECK-SAME:  #hierarchy.step<"streaming", "the divisor %l of %P into the power %E", "exp(a) / b = exp(a - log b)", "one logarithm for all that it divides">
// CHECK:       %l = diagram.reduce add %E over [x]
// CHECK-NEXT:  %log_l = diagram.map (%{{.*}} = %l :
// CHECK-NEXT:    math.log
// CHECK:       %P_1 = diagram.map (%[[X:.*]] = %X_1 : {{.*}}, %[[M:.*]] = %m : {{.*}}, %[[G:.*]] = %log_l :
// CHECK-NEXT:    %[[D:.*]] = arith.subf %[[X]], %[[M]] : f32
// CHECK-NEXT:    %[[E:.*]] = arith.subf %[[D]], %[[G]] : f32
// CHECK-NEXT:    math.exp %[[E]] : f32
// CHECK-NOT:   arith.divf
!X = tensor<?x?xf32, #diagram.array<[q, x]>>
func.func @shares(%X: !X) -> !X {
  %m = diagram.reduce max %X over [x] : !X -> !r
  %E = diagram.map (%s = %X : !X, %r = %m : !r) -> !X {
    %d = arith.subf %s, %r : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }
  %l = diagram.reduce add %E over [x] : !X -> !r
  %P = diagram.map (%e = %E : !X, %r = %l : !r) -> !X {
    %p = arith.divf %e, %r : f32
    diagram.yield %p : f32
  }
  func.return %P : !X
}

// Powers times distances from the maximum follow by a factor, and by a summand that is made of the sum of the powers.
// CHECK-LABEL: func.func @entropy
// CHECK-SAME:  #hierarchy.step<"streaming", "%y of @entropy along x", "cascade", "when %m moves, %y is increased by (%m - %m before) * (%l before * -1) and multiplied by exp(%m before - %m); while %m is neutral nothing counts, and a finite number stands for it">
func.func @entropy(%X: !X) -> (!r, !r) {
  %m = diagram.reduce max %X over [x] : !X -> !r
  %E = diagram.map (%s = %X : !X, %r = %m : !r) -> !X {
    %d = arith.subf %s, %r : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }
  %l = diagram.reduce add %E over [x] : !X -> !r
  %T = diagram.map (%s = %X : !X, %r = %m : !r, %p = %E : !X) -> !X {
    %d = arith.subf %s, %r : f32
    %t = arith.mulf %p, %d : f32
    diagram.yield %t : f32
  }
  %y = diagram.reduce add %T over [x] : !X -> !r
  func.return %l, %y : !r, !r
}

// A recurrence is fed its own axis, whatever its body reduces.
// CHECK-LABEL: func.func @recurrence
// CHECK-SAME:  #hierarchy.step<"streaming", "x of @recurrence", "a recurrence", "one position after another">
// CHECK:       schedule #hierarchy.schedule<stream = [x = ?]>
func.func @recurrence(%X: !X, %r: !r) -> !r {
  %last = diagram.recurrence over x (%s = %r : !r) each (%v = %X : !X) -> (!r) {
    %n = diagram.map (%a = %s : !r, %b = %v : !r) -> !r {
      %p = arith.mulf %a, %b : f32
      diagram.yield %p : f32
    }
    diagram.yield %n : !r
  }
  func.return %last : !r
}
