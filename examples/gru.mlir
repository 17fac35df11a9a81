// A gated recurrent unit (GRU), as torch.nn.GRU has it: a state that a reset and an update gate move towards a new one.
// What the sequence says is three products, kernels of their own; what the state says of itself is a product with a matrix
// at every token, for which what lies along `j` comes to lie along `i` (`diagram.rename`). The matrices stay in registers.
// Those of the state are given times 8, so that elements of about 1 are matrices that take a state to one of its size.
//
//   treadle run examples/gru.mlir --size t=200

!X = tensor<?x?x64xf16, #diagram.array<[b, t, c]>>
!G = tensor<?x?x64xf32, #diagram.array<[b, t, j]>>
!U = tensor<64x64xf16, #diagram.array<[c, j]>>
!W = tensor<64x64xf16, #diagram.array<[i, j]>>
!w = tensor<64x64xf32, #diagram.array<[i, j]>>
!v = tensor<64xf32, #diagram.array<[j]>>
!H = tensor<?x64xf32, #diagram.array<[b, j]>>
!I = tensor<?x64xf32, #diagram.array<[b, i]>>
!h = tensor<?x64xf16, #diagram.array<[b, j]>>
!Y = tensor<?x?x64xf16, #diagram.array<[b, t, j]>>

func.func @gru(%X: !X, %Ur: !U, %Uz: !U, %Un: !U, %Wr: !W, %Wz: !W, %Wn: !W, %br: !v, %bz: !v, %bn: !v, %bh: !v, %H0: !H)
    -> (!Y, !H) attributes {sizes = #diagram.sizes<b = 3, t = 24>} {
  %R = diagram.contract %X, %Ur over [c] accumulate f32 : !X, !U -> !G
  %Z = diagram.contract %X, %Uz over [c] accumulate f32 : !X, !U -> !G
  %N = diagram.contract %X, %Un over [c] accumulate f32 : !X, !U -> !G
  %H, %Y = diagram.recurrence over t (%h = %H0 : !H)
      each (%xr = %R : !G, %xz = %Z : !G, %xn = %N : !G, %wr = %Wr : !W, %wz = %Wz : !W, %wn = %Wn : !W,
            %cr = %br : !v, %cz = %bz : !v, %cn = %bn : !v, %ch = %bh : !v) -> (!H, !Y) {
    %before = diagram.rename %h (j as i) : !H -> !I
    %vr = diagram.cast %wr : !W -> !w
    %vz = diagram.cast %wz : !W -> !w
    %vn = diagram.cast %wn : !W -> !w
    %hr = diagram.contract %before, %vr over [i] accumulate f32 : !I, !w -> !H
    %hz = diagram.contract %before, %vz over [i] accumulate f32 : !I, !w -> !H
    %hn = diagram.contract %before, %vn over [i] accumulate f32 : !I, !w -> !H
    %reset = diagram.map (%x = %xr : !H, %y = %hr : !H, %c = %cr : !v) -> !H {
      %one = arith.constant 1.0 : f32
      %eighth = arith.constant 0.125 : f32
      %k = arith.mulf %y, %eighth : f32
      %s = arith.addf %x, %k : f32
      %u = arith.addf %s, %c : f32
      %m = arith.negf %u : f32
      %e = math.exp %m : f32
      %d = arith.addf %one, %e : f32
      %g = arith.divf %one, %d : f32
      diagram.yield %g : f32
    }
    %update = diagram.map (%x = %xz : !H, %y = %hz : !H, %c = %cz : !v) -> !H {
      %one = arith.constant 1.0 : f32
      %eighth = arith.constant 0.125 : f32
      %k = arith.mulf %y, %eighth : f32
      %s = arith.addf %x, %k : f32
      %u = arith.addf %s, %c : f32
      %m = arith.negf %u : f32
      %e = math.exp %m : f32
      %d = arith.addf %one, %e : f32
      %g = arith.divf %one, %d : f32
      diagram.yield %g : f32
    }
    %after = diagram.map (%x = %xn : !H, %y = %hn : !H, %r = %reset : !H, %z = %update : !H, %old = %h : !H,
                          %c = %cn : !v, %d = %ch : !v) -> !H {
      %one = arith.constant 1.0 : f32
      %eighth = arith.constant 0.125 : f32
      %t = arith.mulf %y, %eighth : f32
      %s = arith.addf %t, %d : f32
      %p = arith.mulf %r, %s : f32
      %q = arith.addf %x, %c : f32
      %u = arith.addf %q, %p : f32
      %new = math.tanh %u : f32
      %shut = arith.subf %one, %z : f32
      %k = arith.mulf %z, %old : f32
      %l = arith.mulf %shut, %new : f32
      %o = arith.addf %k, %l : f32
      diagram.yield %o : f32
    }
    %y = diagram.cast %after : !H -> !h
    diagram.yield %after, %y : !H, !h
  }
  func.return %Y, %H : !Y, !H
}
