// SwiGLU: H = silu(X W) * (X V), two products that share the input X. In one kernel X is loaded once for both.
//
//   treadle run examples/swiglu.mlir --size t=1000

!X = tensor<?x?xf16, #diagram.array<[t, i]>>
!W = tensor<?x?xf16, #diagram.array<[i, j]>>
!Z = tensor<?x?xf32, #diagram.array<[t, j]>>
!H = tensor<?x?xf16, #diagram.array<[t, j]>>

func.func @swiglu(%X: !X, %W: !W, %V: !W) -> !H
    attributes {sizes = #diagram.sizes<t = 100, i = 256, j = 136>} {
  %gate = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !Z
  %value = diagram.contract %X, %V over [i] accumulate f32 : !X, !W -> !Z
  %product = diagram.map (%g = %gate : !Z, %v = %value : !Z) -> !Z {
    %one = arith.constant 1.0 : f32
    %negative = arith.negf %g : f32
    %exp = math.exp %negative : f32
    %divisor = arith.addf %one, %exp : f32
    %silu = arith.divf %g, %divisor : f32
    %h = arith.mulf %silu, %v : f32
    diagram.yield %h : f32
  }
  %H = diagram.cast %product : !Z -> !H
  func.return %H : !H
}
