// Two layers with GELU between, narrow enough to be one kernel: j and o are held whole.

!X = tensor<?x64xf16, #diagram.array<[t, i]>>
!W1 = tensor<64x48xf16, #diagram.array<[i, j]>>
!b = tensor<48xf32, #diagram.array<[j]>>
!Z = tensor<?x48xf32, #diagram.array<[t, j]>>
!H = tensor<?x48xf16, #diagram.array<[t, j]>>
!W2 = tensor<48x40xf16, #diagram.array<[j, o]>>
!Y = tensor<?x40xf32, #diagram.array<[t, o]>>

func.func @mlp(%X: !X, %W1: !W1, %b: !b, %W2: !W2) -> !Y attributes {sizes = #diagram.sizes<t = 19>} {
  %Z = diagram.contract %X, %W1 over [i] accumulate f32 : !X, !W1 -> !Z
  %B = diagram.map (%z = %Z : !Z, %c = %b : !b) -> !Z {
    %y = arith.addf %z, %c : f32
    diagram.yield %y : f32
  }
  %G = diagram.map (%z = %B : !Z) -> !Z {
    %half = arith.constant 0.5 : f32
    %one = arith.constant 1.0 : f32
    %c = arith.constant 0.70710678 : f32
    %u = arith.mulf %z, %c : f32
    %e = math.erf %u : f32
    %v = arith.addf %e, %one : f32
    %w = arith.mulf %z, %v : f32
    %y = arith.mulf %w, %half : f32
    diagram.yield %y : f32
  }
  %H = diagram.cast %G : !Z -> !H
  %Y = diagram.contract %H, %W2 over [j] accumulate f32 : !H, !W2 -> !Y
  func.return %Y : !Y
}
