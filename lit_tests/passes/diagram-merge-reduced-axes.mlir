// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-merge-reduced-axes' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-merge-reduced-axes' %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-merge-reduced-axes{axes=none}' %s | filecheck %s --check-prefix NONE
// RUN: xdsl-opt --verify-diagnostics -p 'set-machine{name=h100},diagram-merge-reduced-axes{axes=q,x}' %s | filecheck %s --check-prefix WRONG

// WRONG: nowhere a product has axis 'q' and others of static sizes, which are reduced together and are not one: such are e, k, x, y

!Q = tensor<?x64xf16, #diagram.array<[q, d]>>
!K = tensor<?x64xf16, #diagram.array<[x, d]>>
!L = tensor<64x64xf16, #diagram.array<[y, d]>>
!pairs = tensor<?x64x64xf16, #diagram.array<[x, y, d]>>
!V = tensor<64x64x?xf16, #diagram.array<[y, d, x]>>
!of_x = tensor<?xi32, #diagram.array<[x]>>
!S = tensor<?x?x64xf32, #diagram.array<[q, x, y]>>
!P = tensor<?x?x64xf16, #diagram.array<[q, x, y]>>
!m = tensor<?xf32, #diagram.array<[q]>>
!O = tensor<?x64xf32, #diagram.array<[q, d]>>

// All pairs share one maximum and one sum. Arrays that lack an axis, or have both in another order, are read at its
// quotient and its remainder; so do conditions ask, and what data say.
// CHECK-LABEL: func.func @pairs
// CHECK-SAME:    #hierarchy.step<"diagram-merge-reduced-axes", "[x, y] as x_y", "a reduction over several axes is one over the axis that they are", "estimated
// CHECK-NEXT:  %K_x_y = diagram.read %K at "x_y // 64, d" padded : tensor<?x64xf16, #diagram.array<[x, d]>> -> tensor<?x64xf16, #diagram.array<[x_y, d]>>
// CHECK-NEXT:  %L_x_y = diagram.read %L at "x_y % 64, d" padded : tensor<64x64xf16, #diagram.array<[y, d]>> -> tensor<?x64xf16, #diagram.array<[x_y, d]>>
// CHECK-NEXT:  %KL_flat = diagram.map (%k = %K_x_y : tensor<?x64xf16, #diagram.array<[x_y, d]>>, %l = %L_x_y
// CHECK:       %S_flat = diagram.contract %Q, %KL_flat over [d] accumulate f32
// CHECK-NEXT:  %of_x_x_y = diagram.read %of_x at "x_y // 64" padded : tensor<?xi32, #diagram.array<[x]>> -> tensor<?xi32, #diagram.array<[x_y]>>
// CHECK-NEXT:  %W_flat = diagram.where %S_flat if "x_y // 64 <= q and x_y % 64 <= of_x_x_y[x_y]" with (of_x_x_y = %of_x_x_y
// CHECK-NEXT:  %m = diagram.reduce max %W_flat over [x_y]
// CHECK-NEXT:  %E_flat = diagram.map (%w = %W_flat
// CHECK:       %l = diagram.reduce add %E_flat over [x_y]
// CHECK-NEXT:  %P_flat = diagram.cast %E_flat
// CHECK-NEXT:  %V_x_y = diagram.read %V at "x_y % 64, d, x_y // 64" padded : tensor<64x64x?xf16, #diagram.array<[y, d, x]>> -> tensor<?x64xf16, #diagram.array<[x_y, d]>>
// CHECK-NEXT:  %A = diagram.contract %P_flat, %V_x_y over [x_y] accumulate f32
// NONE-LABEL: func.func @pairs
// NONE:         diagram.contract %P, %V over [x, y] accumulate f32
func.func @pairs(%Q: !Q, %K: !K, %L: !L, %V: !V, %of_x: !of_x) -> (!O, !m) attributes {sizes = #diagram.sizes<q = 4096, x = 512>} {
  %KL = diagram.map (%k = %K : !K, %l = %L : !L) -> !pairs {
    %kl = arith.mulf %k, %l : f16
    diagram.yield %kl : f16
  }
  %S = diagram.contract %Q, %KL over [d] accumulate f32 : !Q, !pairs -> !S
  %W = diagram.where %S if "x <= q and y <= of_x[x]" with (of_x = %of_x : !of_x) : !S
  %m = diagram.reduce max %W over [x, y] : !S -> !m
  %E = diagram.map (%w = %W : !S, %n = %m : !m) -> !S {
    %t = arith.subf %w, %n : f32
    %e = math.exp %t : f32
    diagram.yield %e : f32
  }
  %l = diagram.reduce add %E over [x, y] : !S -> !m
  %P = diagram.cast %E : !S -> !P
  %A = diagram.contract %P, %V over [x, y] accumulate f32 : !P, !V -> !O
  func.return %A, %l : !O, !m
}

!X = tensor<?x4096xbf16, #diagram.array<[t, k]>>
!M = tensor<8x4096x4096xbf16, #diagram.array<[e, k, n]>>
!G = tensor<?x8xf32, #diagram.array<[t, e]>>
!Y = tensor<?x8x4096xf32, #diagram.array<[t, e, n]>>
!R = tensor<?x4096xf32, #diagram.array<[t, n]>>

// A sum of products, each with a scale of its own, goes over pieces of the products, each with that scale.
// CHECK-LABEL: func.func @mixture
// CHECK-SAME:    #hierarchy.step<"diagram-merge-reduced-axes", "[e, k_piece] as e_k_piece"
// CHECK:       %X_pieces = diagram.expand %X k as [k_piece, k_within]
// CHECK:       %X_pieces_e_k_piece = diagram.read %X_pieces at "t, e_k_piece % 32, k_within" padded
// CHECK-NEXT:  %M_pieces_e_k_piece = diagram.collapse %M_pieces [e, k_piece] as e_k_piece
// CHECK-NEXT:  %Y_pieces_flat = diagram.contract %X_pieces_e_k_piece, %M_pieces_e_k_piece over [k_within] accumulate f32
// CHECK-NEXT:  %G_e_k_piece = diagram.read %G at "t, e_k_piece // 32" padded
// CHECK-NEXT:  %Z_pieces_flat = diagram.map (%y = %Y_pieces_flat
// CHECK:       %R = diagram.reduce add %Z_pieces_flat over [e_k_piece]
// NONE-LABEL: func.func @mixture
// NONE:         %R = diagram.reduce add %Z over [e]
func.func @mixture(%X: !X, %M: !M, %G: !G) -> !R attributes {sizes = #diagram.sizes<t = 4096>} {
  %Y = diagram.contract %X, %M over [k] accumulate f32 : !X, !M -> !Y
  %Z = diagram.map (%y = %Y : !Y, %g = %G : !G) -> !Y {
    %z = arith.mulf %y, %g : f32
    diagram.yield %z : f32
  }
  %R = diagram.reduce add %Z over [e] : !Y -> !R
  func.return %R : !R
}
