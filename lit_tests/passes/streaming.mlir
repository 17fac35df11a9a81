// RUN: xdsl-opt -p 'fusion,streaming' %s | filecheck %s
// RUN: xdsl-opt -p 'fusion,streaming{axis=d kernel=scores}' %s | filecheck %s --check-prefix CHOSEN

!Q = tensor<?x64xf16, #diagram.array<[q, d]>>
!K = tensor<?x64xf16, #diagram.array<[x, d]>>
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!r = tensor<?xf32, #diagram.array<[q]>>

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
